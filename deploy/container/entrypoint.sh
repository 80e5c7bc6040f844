#!/bin/sh
# Every argument is a command of trimtab, except the word `executor`, with which Spark on Kubernetes starts an executor.
# This script then turns the variables that Spark sets into the options of the backend (BasicExecutorFeatureStep). The
# pyspark package contains Spark's jars, but not the script of its images.
set -eu
if [ "${1:-}" != executor ]; then
  exec trimtab "$@"
fi
spark=$(python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')
options=$(mktemp)
# Each option is in quotes, as java expects it in a file of arguments.
env | sed -n '/^SPARK_JAVA_OPT_[0-9]*=/{s///;s/[\\"]/\\&/g;s/.*/"&"/;p;}' >"$options"
exec java "@$options" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CONF_DIR:-}:${SPARK_CLASSPATH:-}:$spark/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "${SPARK_EXECUTOR_POD_NAME:-}"
