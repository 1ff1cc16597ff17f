{{- define "outlane.secret.data" -}}
{{- $seen := dict -}}
{{- range $name, $d := include "outlane.databases" . | fromJson }}
{{- if not (hasKey $seen $d.prefix) }}
{{- $_ := set $seen $d.prefix true }}
{{- include "outlane.database.data" $d }}
{{- end }}
{{- end }}
{{- include "outlane.nats.data" . }}
{{- end -}}

{{- /* Environment of every container. It takes the root, the name of a database, and the name of the Secret. */ -}}
{{- define "outlane.env" -}}
{{- $d := get (include "outlane.databases" .root | fromJson) .database -}}
{{- include "outlane.database.env" (merge (dict "secret" .secret) $d) }}
- {name: OUTLANE_CONFIG, value: /etc/outlane/outlane.yaml}
{{- if .nats }}
{{ include "outlane.nats.env" (dict "Values" .root.Values "secret" .secret) }}
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* What is the same in every pod. */ -}}
{{- define "outlane.pod" -}}
enableServiceLinks: false
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "outlane.container" -}}
image: {{ include "outlane.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
{{- with .Values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* What every container of ours mounts, and where it comes from. Each takes root, config (name of the ConfigMap) and nats (whether it talks to NATS). */ -}}
{{- define "outlane.mounts" -}}
- {name: config, mountPath: /etc/outlane/outlane.yaml, subPath: outlane.yaml, readOnly: true}
{{- if .nats }}
{{- with include "outlane.nats.mounts" .root | trim }}
{{ . }}
{{- end }}
{{- end }}
{{- with .root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "outlane.volumes" -}}
- name: config
  configMap: {name: {{ .config }}}
{{- if .nats }}
{{- with include "outlane.nats.volumes" (dict "Values" .root.Values "secret" .config) | trim }}
{{ . }}
{{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Labels of pods: without the chart's version, so that a new chart alone makes no new pods. */ -}}
{{- define "outlane.podLabels" -}}
{{ include "outlane.selector" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}
