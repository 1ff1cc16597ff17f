{{- define "outlane.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* At most 44 characters, so that every suffix fits into 63. What is cut off is replaced by a part of its hash, so that long names stay apart. */ -}}
{{- define "outlane.fullname" -}}
{{- $name := .Release.Name -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if not (contains (include "outlane.name" .) .Release.Name) -}}
{{- $name = printf "%s-%s" .Release.Name (include "outlane.name" .) -}}
{{- end -}}
{{- if gt (len $name) 44 -}}
{{- $name = printf "%s-%s" (trunc 35 $name | trimSuffix "-" | trimSuffix ".") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "outlane.selector" -}}
app.kubernetes.io/name: {{ include "outlane.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "outlane.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "outlane.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "outlane.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "outlane.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "outlane.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- /* Seconds of a duration such as 1m30s, rounded up. */ -}}
{{- define "outlane.seconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ns|us|µs|ms|s|m|h)" . -1 -}}
{{- $number := regexFind "^[0-9.]+" . | float64 -}}
{{- $unit := regexFind "[a-zµ]+$" . -}}
{{- $factor := get (dict "ns" 0.000000001 "us" 0.000001 "µs" 0.000001 "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) $unit -}}
{{- $sum = addf $sum (mulf $number $factor) -}}
{{- end -}}
{{- ceil $sum | int64 -}}
{{- end -}}

{{- define "outlane.drainSeconds" -}}
{{- $worker := default (dict) .Values.config.worker -}}
{{- include "outlane.seconds" (default "25s" $worker.drainTimeout) -}}
{{- end -}}

{{- define "outlane.onKubernetes" -}}
{{- $lease := default (dict) .Values.config.lease -}}
{{- if eq (default "kubernetes" $lease.backend) "kubernetes" }}true{{ end -}}
{{- end -}}

{{- define "outlane.schema" -}}
{{- $database := default (dict) .Values.config.database -}}
{{- default "public" $database.schema -}}
{{- end -}}

{{- /* The configuration file: values, and what the chart knows. */ -}}
{{- define "outlane.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $lease := default (dict) $config.lease -}}
{{- $_ := set $lease "backend" (default "kubernetes" $lease.backend) -}}
{{- if include "outlane.onKubernetes" . -}}
{{- $_ := set $lease "instance" (default (include "outlane.fullname" .) $lease.instance) -}}
{{- end -}}
{{- $_ := set $config "lease" $lease -}}
{{- toYaml $config -}}
{{- end -}}
