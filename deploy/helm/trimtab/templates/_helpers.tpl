{{- define "trimtab.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "trimtab.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "trimtab.labels" -}}
{{ include "trimtab.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "trimtab.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "trimtab.fullname" .) }}
{{- end -}}

{{- define "trimtab.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end -}}

{{/* A cluster's name as a part of an object's name; the digest tells names apart that differ only in what is cut or replaced. */}}
{{- define "trimtab.objectPart" -}}
{{ regexReplaceAll "[^a-z0-9]+" (lower .) "-" | trunc 12 | trimAll "-" }}-{{ sha256sum . | trunc 6 }}
{{- end -}}

{{/*
A table as TOML: its values, then the tables below it. Helm's own toToml makes 9464.0 of 9464, because YAML's numbers
reach it as floats; a value in JSON is one in TOML, too. A key that is null is unset, so it is not written.
*/}}
{{- define "trimtab.toml" -}}
{{- range $key, $value := .table -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ toJson $key }} = {{ toJson $value }}
{{- end -}}
{{- end -}}
{{- range $key, $value := .table -}}
{{- if kindIs "map" $value -}}
{{- $path := append $.path (toJson $key) }}
[{{ join "." $path }}]
{{- include "trimtab.toml" (dict "path" $path "table" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses values with which a program would start and then fail, or would lose its memory. */}}
{{- define "trimtab.check" -}}
{{- $spark := .Values.settings.spark | default dict -}}
{{- $checkpoint := $spark.checkpoint | default "checkpoint" -}}
{{- if .Values.persistence.enabled -}}
{{- if not (hasPrefix "/var/lib/trimtab/" $checkpoint) -}}
{{- fail (printf "settings.spark.checkpoint is %q, outside the volume /var/lib/trimtab: put it there, or set persistence.enabled: false for a URL" $checkpoint) -}}
{{- end -}}
{{- else if not (contains "://" $checkpoint) -}}
{{- fail (printf "persistence.enabled is false and settings.spark.checkpoint is %q, which ends with the pod: give the URL of a store that every start reaches" $checkpoint) -}}
{{- end -}}
{{- $metrics := .Values.settings.metrics | default dict -}}
{{- if has ($metrics.host | default "127.0.0.1") (list "127.0.0.1" "localhost" "::1") -}}
{{- fail "settings.metrics.host is loopback, where no probe reaches it: set 0.0.0.0" -}}
{{- end -}}
{{- if eq (int $metrics.port) 0 -}}
{{- fail "settings.metrics.port is 0 or unset: the probes need to know the port, such as 9464" -}}
{{- end -}}
{{- range $cluster, $target := .Values.targets -}}
{{- $section := index ($.Values.settings.targets | default dict) $cluster | default dict -}}
{{- if not (hasKey $section $target.system) -}}
{{- fail (printf "targets has %q, but settings.targets.%q.%s, which says how it is reached, is missing" $cluster $cluster $target.system) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Several controllers need a checkpoint that all of them reach. */}}
{{- define "trimtab.checkShared" -}}
{{- if and (gt (int .Values.replicas) 1) .Values.persistence.enabled (not .Values.persistence.existingClaim) -}}
{{- fail "replicas is above 1, but each controller would have a checkpoint of its own: set persistence.existingClaim to a claim with ReadWriteMany, or persistence.enabled: false with a URL as settings.spark.checkpoint" -}}
{{- end -}}
{{- end -}}

{{/* A pod of any component: root, component, args, resources; data is the name of the volume's claim, if any. */}}
{{- define "trimtab.pod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "trimtab.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with .cluster }}
    trimtab/cluster: {{ include "trimtab.objectPart" . }}
    {{- end }}
    {{- with $root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/settings: {{ toJson $root.Values.settings | sha256sum }}
    {{- with $root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "trimtab.serviceAccount" $root }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ $root.Values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- if and (eq .component "controller") $root.Values.createTopics }}
  initContainers:
    - name: topics
      args: [topics, create, --config, /etc/trimtab/settings/trimtab.toml]
      {{- include "trimtab.container" . | nindent 6 }}
  {{- end }}
  {{- if and (eq .component "controller") (gt (int $root.Values.replicas) 1) }}
  topologySpreadConstraints: # a lost node takes one of them
    - topologyKey: kubernetes.io/hostname
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "trimtab.selector" $root | nindent 10 }}
          app.kubernetes.io/component: controller
  {{- end }}
  containers:
    - name: {{ .component }}
      {{- $port := ternary list (list "--metrics-port" (toString (int $root.Values.settings.metrics.port))) (eq .component "controller") }}
      args: {{ concat .args $port (list "--config" "/etc/trimtab/settings/trimtab.toml") | toJson }}
      {{- include "trimtab.container" . | nindent 6 }}
      ports:
        - name: metrics
          containerPort: {{ int $root.Values.settings.metrics.port }}
      startupProbe: # Java, Spark and the check of the topics come first
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 5
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 20
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
  volumes:
    - name: settings
      configMap:
        name: {{ include "trimtab.fullname" $root }}
    - name: tmp
      emptyDir: {}
    {{- if .claim }}
    - name: data
      persistentVolumeClaim:
        claimName: {{ .claim }}
    {{- else if not .claimTemplate }}
    - name: data
      emptyDir: {}
    {{- end }}
    {{- range $root.Values.secrets.files }}
    - name: {{ printf "secret-%s" (sha256sum .path | trunc 10) }}
      secret:
        secretName: {{ .secret }}
        defaultMode: 0440
    {{- end }}
  {{- with $root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
{{- end -}}

{{- define "trimtab.container" -}}
{{- $root := .root -}}
image: {{ include "trimtab.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- with $root.Values.secrets.env }}
env:
  {{- range . }}
  - name: {{ .name }}
    valueFrom:
      secretKeyRef:
        name: {{ .secret }}
        key: {{ .key }}
  {{- end }}
{{- end }}
resources:
  {{- toYaml .resources | nindent 2 }}
volumeMounts:
  - name: settings
    mountPath: /etc/trimtab/settings
    readOnly: true
  - name: tmp
    mountPath: /tmp
  - name: data
    mountPath: /var/lib/trimtab
  {{- range $root.Values.secrets.files }}
  - name: {{ printf "secret-%s" (sha256sum .path | trunc 10) }}
    mountPath: {{ .path }}
    readOnly: true
  {{- end }}
{{- end -}}
