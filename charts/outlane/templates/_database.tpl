{{- /* How to reach Postgres. Each takes a dict: database (values), secret (name of the Secret that the chart made for it), prefix (of its keys). */ -}}

{{- define "outlane.database.address" -}}
{{- $d := .database -}}
{{- $user := "" -}}
{{- if $d.user -}}{{- $user = printf "%s@" ($d.user | urlquery | replace "+" "%20") -}}{{- end -}}
{{- $params := list -}}
{{- range $key, $value := default (dict) $d.params -}}
{{- $params = append $params (printf "%s=%s" (urlquery $key) (toString $value | urlquery | replace "+" "%20")) -}}
{{- end -}}
postgres://{{ $user }}{{ $d.host }}:{{ default 5432 $d.port | int64 }}/{{ $d.name | urlquery | replace "+" "%20" }}
{{- with $params }}?{{ join "&" . }}{{ end -}}
{{- end -}}

{{- define "outlane.database.env" -}}
{{- $d := .database -}}
{{- $urlSecret := default (dict) $d.urlSecret -}}
{{- $passwordSecret := default (dict) $d.passwordSecret -}}
- name: OUTLANE_DATABASE_URL
{{- if $urlSecret.name }}
  valueFrom:
    secretKeyRef: {name: {{ $urlSecret.name | quote }}, key: {{ default "url" $urlSecret.key | quote }}}
{{- else if $d.url }}
  valueFrom:
    secretKeyRef: {name: {{ .secret }}, key: {{ .prefix }}url}
{{- else }}
  value: {{ include "outlane.database.address" . | quote }}
{{- if $passwordSecret.name }}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef: {name: {{ $passwordSecret.name | quote }}, key: {{ default "password" $passwordSecret.key | quote }}}
{{- else if $d.password }}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .secret }}, key: {{ .prefix }}password}
{{- end }}
{{- end }}
{{- end -}}

{{- /* What the chart's Secret has of it. */ -}}
{{- define "outlane.database.data" -}}
{{- $d := .database -}}
{{- if $d.url }}
{{ .prefix }}url: {{ $d.url | b64enc }}
{{- else if $d.password }}
{{ .prefix }}password: {{ $d.password | b64enc }}
{{- end }}
{{- end -}}

{{- /* Values that say one thing twice, or nothing, are refused by name. */ -}}
{{- define "outlane.database.check" -}}
{{- $d := .database -}}
{{- $at := .at -}}
{{- $urlSecret := default (dict) $d.urlSecret -}}
{{- $passwordSecret := default (dict) $d.passwordSecret -}}
{{- $ways := list -}}
{{- if $d.url -}}{{- $ways = append $ways (printf "%s.url" $at) -}}{{- end -}}
{{- if $urlSecret.name -}}{{- $ways = append $ways (printf "%s.urlSecret" $at) -}}{{- end -}}
{{- if $d.host -}}{{- $ways = append $ways (printf "%s.host" $at) -}}{{- end -}}
{{- if gt (len $ways) 1 -}}{{- fail (printf "%s are set; keep one" (join " and " $ways)) -}}{{- end -}}
{{- if not $ways -}}{{- fail (printf "%s.url, %s.urlSecret.name or %s.host must be set" $at $at $at) -}}{{- end -}}
{{- if $d.host -}}
{{- if not $d.name -}}{{- fail (printf "%s.name must be set beside %s.host" $at $at) -}}{{- end -}}
{{- if and $d.password $passwordSecret.name -}}{{- fail (printf "%s.password and %s.passwordSecret are set; keep one" $at $at) -}}{{- end -}}
{{- if and (or $d.password $passwordSecret.name) (not $d.user) -}}{{- fail (printf "%s.password is set without %s.user" $at $at) -}}{{- end -}}
{{- else -}}
{{- range $key := list "name" "user" "password" "params" -}}
{{- if get $d $key -}}{{- fail (printf "%s.%s is set, and %s too, which has it already; keep one" $at $key (first $ways)) -}}{{- end -}}
{{- end -}}
{{- if $passwordSecret.name -}}{{- fail (printf "%s.passwordSecret is set, and %s too, which has the password already; keep one" $at (first $ways)) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Databases of others than workers are the workers' own unless they say something. */ -}}
{{- define "outlane.databases" -}}
{{- $all := dict "worker" (dict "database" .Values.database "at" "database" "prefix" "database-") -}}
{{- $others := list (list "migrate" .Values.migrations.database "migrations.database") (list "scaler" .Values.autoscaling.database "autoscaling.database") (list "test" .Values.test.database "test.database") -}}
{{- range $others -}}
{{- if index . 1 -}}
{{- $_ := set $all (index . 0) (dict "database" (index . 1) "at" (index . 2) "prefix" (printf "%s-database-" (index . 0))) -}}
{{- else -}}
{{- $_ := set $all (index . 0) (get $all "worker") -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}
