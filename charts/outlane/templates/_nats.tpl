{{- /* Secrets for NATS are files, which the worker reads again at each connection, so that changed ones are picked up. */ -}}
{{- define "outlane.nats.sources" -}}
{{- $sources := list -}}
{{- $n := .Values.nats -}}
{{- $own := .secret -}}
{{- range list (list "password" "nats-password" "password") (list "token" "nats-token" "token") (list "creds" "nats-creds" "user.creds") (list "nkey" "nats-nkey" "user.nk") -}}
{{- $what := index . 0 -}}
{{- $secret := default (dict) (get $n (printf "%sSecret" $what)) -}}
{{- if $secret.name -}}
{{- $sources = append $sources (dict "what" $what "name" $secret.name "key" (default (index . 2) $secret.key)) -}}
{{- else if get $n $what -}}
{{- $sources = append $sources (dict "what" $what "name" $own "key" (index . 1)) -}}
{{- end -}}
{{- end -}}
{{- toJson $sources -}}
{{- end -}}

{{- define "outlane.nats.env" -}}
{{- $n := .Values.nats -}}
{{- $urlSecret := default (dict) $n.urlSecret -}}
- name: OUTLANE_NATS_URL
{{- if $urlSecret.name }}
  valueFrom:
    secretKeyRef: {name: {{ $urlSecret.name | quote }}, key: {{ default "url" $urlSecret.key | quote }}}
{{- else }}
  value: {{ $n.url | quote }}
{{- end }}
{{- with $n.user }}
- {name: OUTLANE_NATS_USER, value: {{ . | quote }}}
{{- end }}
{{- range include "outlane.nats.sources" . | fromJsonArray }}
- {name: {{ get (dict "password" "OUTLANE_NATS_PASSWORD_FILE" "token" "OUTLANE_NATS_TOKEN_FILE" "creds" "OUTLANE_NATS_CREDS_FILE" "nkey" "OUTLANE_NATS_NKEY_FILE") .what }}, value: /etc/outlane/nats/{{ .what }}}
{{- end }}
{{- if $n.tls.secretName }}
{{- range $what, $env := dict "ca" "OUTLANE_NATS_TLS_CA" "cert" "OUTLANE_NATS_TLS_CERT" "key" "OUTLANE_NATS_TLS_KEY" }}
{{- if get $n.tls $what }}
- {name: {{ $env }}, value: {{ printf "/etc/outlane/nats-tls/%s" (get $n.tls $what) | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "outlane.nats.volumes" -}}
{{- with include "outlane.nats.sources" . | fromJsonArray }}
- name: nats
  projected:
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret:
          name: {{ .name | quote }}
          items: [{key: {{ .key | quote }}, path: {{ .what }}}]
      {{- end }}
{{- end }}
{{- with .Values.nats.tls.secretName }}
- name: nats-tls
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "outlane.nats.mounts" -}}
{{- if include "outlane.nats.sources" . | fromJsonArray }}
- {name: nats, mountPath: /etc/outlane/nats, readOnly: true}
{{- end }}
{{- if .Values.nats.tls.secretName }}
- {name: nats-tls, mountPath: /etc/outlane/nats-tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "outlane.nats.data" -}}
{{- $n := .Values.nats -}}
{{- range $what := list "password" "token" "creds" "nkey" }}
{{- with get $n $what }}
nats-{{ $what }}: {{ . | b64enc }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "outlane.nats.check" -}}
{{- $n := .Values.nats -}}
{{- $ways := list -}}
{{- range $what := list "token" "creds" "nkey" -}}
{{- $secret := default (dict) (get $n (printf "%sSecret" $what)) -}}
{{- if and (get $n $what) $secret.name -}}{{- fail (printf "nats.%s and nats.%sSecret are set; keep one" $what $what) -}}{{- end -}}
{{- if or (get $n $what) $secret.name -}}{{- $ways = append $ways (printf "nats.%s" $what) -}}{{- end -}}
{{- end -}}
{{- $password := default (dict) $n.passwordSecret -}}
{{- if and $n.password $password.name -}}{{- fail "nats.password and nats.passwordSecret are set; keep one" -}}{{- end -}}
{{- if and (or $n.password $password.name) (not $n.user) -}}{{- fail "nats.password is set without nats.user" -}}{{- end -}}
{{- if $n.user -}}{{- $ways = append $ways "nats.user" -}}{{- end -}}
{{- if gt (len $ways) 1 -}}{{- fail (printf "%s are set; keep one way to log in" (join " and " $ways)) -}}{{- end -}}
{{- $urlSecret := default (dict) $n.urlSecret -}}
{{- if and $n.url $urlSecret.name -}}{{- fail "nats.url and nats.urlSecret are set; keep one" -}}{{- end -}}
{{- if not (or $n.url $urlSecret.name) -}}{{- fail "nats.url or nats.urlSecret.name must be set" -}}{{- end -}}
{{- if and $n.url (regexMatch "://[^/]*:[^/@]*@" $n.url) -}}{{- fail "nats.url has a password in it, which everybody who may see the Deployment could read; use nats.user and nats.password, or nats.urlSecret" -}}{{- end -}}
{{- if and (or $n.tls.ca $n.tls.cert $n.tls.key) (not $n.tls.secretName) -}}{{- fail "nats.tls.ca, cert or key is set without nats.tls.secretName" -}}{{- end -}}
{{- if ne (empty $n.tls.cert) (empty $n.tls.key) -}}{{- fail "nats.tls.cert and nats.tls.key must be set both" -}}{{- end -}}
{{- end -}}
