{{- /* What values.schema.json cannot say, because it is about several values. Every template that matters includes this first. */ -}}
{{- define "outlane.check" -}}
{{- range $name, $d := include "outlane.databases" . | fromJson -}}
{{- include "outlane.database.check" $d -}}
{{- end -}}
{{- include "outlane.nats.check" . -}}
{{- $partitions := int64 (default 64 .Values.config.partitions) -}}
{{- $a := .Values.autoscaling -}}
{{- if $a.enabled -}}
{{- if gt (int64 $a.maxReplicas) $partitions -}}{{- fail (printf "autoscaling.maxReplicas is %d, above config.partitions of %d: more workers than partitions have nothing to do" (int64 $a.maxReplicas) $partitions) -}}{{- end -}}
{{- if gt (int64 $a.minReplicas) (int64 $a.maxReplicas) -}}{{- fail (printf "autoscaling.minReplicas is %d, above autoscaling.maxReplicas of %d" (int64 $a.minReplicas) (int64 $a.maxReplicas)) -}}{{- end -}}
{{- if eq $a.trigger "prometheus" -}}
{{- if not $a.prometheus.serverAddress -}}{{- fail "autoscaling.prometheus.serverAddress must be set for the trigger prometheus" -}}{{- end -}}
{{- if lt (int64 $a.minReplicas) 1 -}}{{- fail "autoscaling.minReplicas is 0, but the trigger prometheus knows nothing while no worker runs; use the trigger postgresql or external" -}}{{- end -}}
{{- if not (or .Values.podMonitor.enabled .Values.serviceMonitor.enabled) -}}{{- fail "autoscaling.trigger prometheus needs podMonitor.enabled or serviceMonitor.enabled, whose labels its query selects by" -}}{{- end -}}
{{- end -}}
{{- else if gt (int64 .Values.replicas) $partitions -}}
{{- fail (printf "replicas is %d, above config.partitions of %d: more workers than partitions have nothing to do" (int64 .Values.replicas) $partitions) -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled -}}{{- fail "podMonitor.enabled and serviceMonitor.enabled would scrape every worker twice; keep one" -}}{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.service.enabled) -}}{{- fail "serviceMonitor.enabled needs service.enabled" -}}{{- end -}}
{{- if and .Values.image.tag .Values.image.digest -}}{{- fail "image.tag and image.digest are set; keep one" -}}{{- end -}}
{{- $drain := int64 (include "outlane.drainSeconds" .) -}}
{{- if not (kindIs "invalid" .Values.terminationGracePeriodSeconds) -}}
{{- if lt (int64 .Values.terminationGracePeriodSeconds) (add $drain 5) -}}{{- fail (printf "terminationGracePeriodSeconds is %d, less than 5 seconds above config.worker.drainTimeout of %ds: pods would be killed while they hand over" (int64 .Values.terminationGracePeriodSeconds) $drain) -}}{{- end -}}
{{- end -}}
{{- if and (include "outlane.onKubernetes" .) (not .Values.rbac.create) (not .Values.serviceAccount.name) -}}{{- fail "rbac.create is false, so serviceAccount.name must name one that may get, list, watch, create, update and delete leases; or set config.lease.backend to postgres" -}}{{- end -}}
{{- end -}}
