{{- define "tritonwatch.name" -}}
{{- printf "%s-tritonwatch" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "tritonwatch.labels" -}}
app.kubernetes.io/name: tritonwatch
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "tritonwatch.selector" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- toYaml .Values.podLabels -}}
{{- else -}}
app.kubernetes.io/name: tritonwatch
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- end -}}

{{/* The service account of the pod: its own, one of yours, or none. */}}
{{- define "tritonwatch.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "tritonwatch.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The port of the page and the metrics. */}}
{{- define "tritonwatch.port" -}}
{{- dig "port" 8003 (.Values.config.listen | default dict) | int -}}
{{- end -}}

{{/* The configuration file: what `config` says over the default target, and a state file for the
statistics in the volume `tritonwatch-state`. Another server than Triton has neither. */}}
{{- define "tritonwatch.config" -}}
{{- $address := dig "address" "" (.Values.config.listen | default dict) -}}
{{- if regexMatch "^(127[.].*|localhost|::1|\\[::1\\])$" $address -}}
{{- fail (printf "config.listen.address: found %s, which Kubernetes' probes and Prometheus cannot reach; leave it out" $address) -}}
{{- end -}}
{{- if eq (dig "kind" "triton" (.Values.config.target | default dict)) "triton" -}}
{{- $host := eq .Values.mode "sidecar" | ternary "localhost" "triton-0.triton" -}}
{{- $target := dict "grpc" (printf "%s:8001" $host) "http" (printf "%s:8000" $host) "metrics" (printf "%s:8002" $host) -}}
{{- $config := mergeOverwrite (dict "target" $target) (deepCopy .Values.config) -}}
{{- $statistics := dict "kind" "statistics" "state_file" "/var/lib/tritonwatch/statistics.json" -}}
{{- $collectors := list -}}
{{- range $config.collectors -}}
{{- if eq .kind "statistics" -}}
{{- $statistics = mergeOverwrite $statistics . -}}
{{- else -}}
{{- $collectors = append $collectors . -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "collectors" (append $collectors $statistics) -}}
{{- toYaml $config -}}
{{- else -}}
{{- toYaml .Values.config -}}
{{- end -}}
{{- end -}}

{{/* One container. As a native sidecar (an init container that restarts always) it is up before
Triton and gone after it; its startup must not wait for Triton, or the pod would never start. */}}
{{- define "tritonwatch.container" -}}
- name: tritonwatch
  image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if eq .Values.mode "sidecar" }}
  restartPolicy: Always
  {{- end }}
  args: [serve, --config, /etc/tritonwatch/tritonwatch.yaml]
  {{- with .Values.extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - name: tritonwatch
      containerPort: {{ include "tritonwatch.port" . }}
  startupProbe:
    httpGet:
      path: /-/healthy
      port: tritonwatch
    periodSeconds: 1
    failureThreshold: 30
  livenessProbe:
    httpGet:
      path: /-/healthy
      port: tritonwatch
    periodSeconds: 10
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    readOnlyRootFilesystem: true
    allowPrivilegeEscalation: false
    capabilities:
      drop: [ALL]
    seccompProfile:
      type: RuntimeDefault
  volumeMounts:
    - name: tritonwatch
      mountPath: /etc/tritonwatch
      readOnly: true
    - name: tritonwatch-state
      mountPath: /var/lib/tritonwatch
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "tritonwatch.volume" -}}
- name: tritonwatch
  configMap:
    name: {{ include "tritonwatch.name" . }}
- name: tritonwatch-state
  {{- if .Values.state.claim }}
  persistentVolumeClaim:
    claimName: {{ .Values.state.claim }}
  {{- else }}
  emptyDir:
    sizeLimit: 256Mi
  {{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
