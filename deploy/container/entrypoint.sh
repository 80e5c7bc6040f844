#!/bin/sh
# Everything is a command of trimtab, except the one word by which Spark on Kubernetes starts an executor: its image has
# to turn the variables Spark sets into the backend's options (BasicExecutorFeatureStep; the wheel of pyspark carries
# Spark's jars, but not its images' script).
set -eu
if [ "${1:-}" != executor ]; then
  exec trimtab "$@"
fi
spark=$(python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')
options=$(mktemp)
# Each in quotes, as a file of java's arguments wants it.
env | sed -n '/^SPARK_JAVA_OPT_[0-9]*=/{s///;s/[\\"]/\\&/g;s/.*/"&"/;p;}' >"$options"
exec java "@$options" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CONF_DIR:-}:${SPARK_CLASSPATH:-}:$spark/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "${SPARK_EXECUTOR_POD_NAME:-}"
