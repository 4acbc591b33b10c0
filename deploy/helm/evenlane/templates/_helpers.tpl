{{- define "evenlane.name" -}}
{{- if eq .Release.Name .Chart.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "evenlane.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end }}

{{- define "evenlane.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "evenlane.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "evenlane.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end -}}
{{- end }}

{{/* An image; `of` is its values, `what` its name in a sentence. */}}
{{- define "evenlane.image" -}}
{{- $image := .of -}}
{{- if not $image.repository }}{{ fail (printf "%s.repository is missing: name an image" .what) }}{{ end -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}{{ else }}{{ $image.repository }}:{{ required (printf "%s needs a tag or a digest" .what) $image.tag }}{{ end -}}
{{- end }}

{{/* Refuses values that the schema can't: they contradict each other. */}}
{{- define "evenlane.check" -}}
{{- $v := .Values -}}
{{- if not $v.handler }}{{ fail "handler is missing: name it as MODULE:FUNCTION or MODULE:APP, for example shop.jobs:handle" }}{{ end -}}
{{- if not $v.nats.servers }}{{ fail "nats.servers is empty: name your NATS servers, for example [nats://nats.nats.svc:4222]" }}{{ end -}}
{{- if not $v.etcd.endpoints }}{{ fail "etcd.endpoints is empty: name the members of your etcd, for example [etcd.etcd.svc:2379]" }}{{ end -}}
{{- if gt (int $v.scaling.min) (int $v.scaling.max) }}{{ fail (printf "scaling.min (%d) is above scaling.max (%d)" (int $v.scaling.min) (int $v.scaling.max)) }}{{ end -}}
{{- if and (eq $v.scaling.mode "hpa") (not $v.scaling.hpa.metrics) }}{{ fail "scaling.mode is hpa, but scaling.hpa.metrics is empty: name a metric to scale by" }}{{ end -}}
{{- range $server, $of := dict "nats" $v.nats "etcd" $v.etcd -}}
{{- if and $of.user (not $of.password.existingSecret) }}{{ fail (printf "%s.user is set without %s.password.existingSecret" $server $server) }}{{ end -}}
{{- if and $of.password.existingSecret (not $of.user) }}{{ fail (printf "%s.password is set without %s.user" $server $server) }}{{ end -}}
{{- end -}}
{{- if and $v.nats.creds.existingSecret $v.nats.user }}{{ fail "nats.creds and nats.user are both set: use one of them" }}{{ end -}}
{{- if and $v.reports.enabled (not $v.reports.existingClaim) }}{{ fail "reports.enabled is true, but reports.existingClaim is empty: name the claim on which reports are stored" }}{{ end -}}
{{- end }}

{{/* Secrets that become files: a setting that names the file, the secret, and its key. */}}
{{- define "evenlane.secretFiles" -}}
{{- $v := .Values -}}
files:
{{- range $setting, $of := dict "nats_password_file" $v.nats.password "nats_creds_file" $v.nats.creds "nats_ca" $v.nats.ca "etcd_password_file" $v.etcd.password "etcd_ca" $v.etcd.ca "http_token_file" $v.http.token "http_tokens_file" $v.http.tokens "push_ca" $v.push.ca }}
{{- if $of.existingSecret }}
  - {setting: {{ $setting }}, secret: {{ $of.existingSecret | quote }}, key: {{ $of.key | quote }}}
{{- end }}
{{- end }}
{{- range $server, $of := dict "nats" $v.nats.clientCertificate "etcd" $v.etcd.clientCertificate }}
{{- if $of.existingSecret }}
  - {setting: {{ $server }}_cert, secret: {{ $of.existingSecret | quote }}, key: {{ $of.certKey | quote }}}
  - {setting: {{ $server }}_key, secret: {{ $of.existingSecret | quote }}, key: {{ $of.keyKey | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{/* A value as the text of a variable. */}}
{{- define "evenlane.text" -}}
{{- if kindIs "slice" . }}{{ join "," . }}{{ else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{/* Variables of all processes: servers, environment, credentials, settings. */}}
{{- define "evenlane.env" -}}
{{- $v := .Values -}}
- {name: EVENLANE_NATS, value: {{ join "," $v.nats.servers | quote }}}
{{- with $v.nats.monitor }}
- {name: EVENLANE_NATS_MONITOR, value: {{ join "," . | quote }}}
{{- end }}
- {name: EVENLANE_ETCD, value: {{ join "," $v.etcd.endpoints | quote }}}
- {name: EVENLANE_ENV, value: {{ $v.environment | quote }}}
{{- with $v.nats.user }}
- {name: EVENLANE_NATS_USER, value: {{ . | quote }}}
{{- end }}
{{- with $v.etcd.user }}
- {name: EVENLANE_ETCD_USER, value: {{ . | quote }}}
{{- end }}
{{- range (include "evenlane.secretFiles" . | fromYaml).files }}
- {name: EVENLANE_{{ .setting | upper }}, value: /etc/evenlane/secrets/{{ .setting }}}
{{- end }}
{{- if $v.push.secrets.existingSecret }}
- {name: EVENLANE_PUSH_SECRETS, value: /etc/evenlane/push-secrets}
{{- end }}
{{- range $setting, $value := $v.config }}
- {name: EVENLANE_{{ $setting | upper }}, value: {{ include "evenlane.text" $value | quote }}}
{{- end }}
{{- end }}

{{- define "evenlane.volumeMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if (include "evenlane.secretFiles" . | fromYaml).files }}
- {name: secrets, mountPath: /etc/evenlane/secrets, readOnly: true}
{{- end }}
{{- if .Values.push.secrets.existingSecret }}
- {name: push-secrets, mountPath: /etc/evenlane/push-secrets, readOnly: true}
{{- end }}
{{- end }}

{{/* The volumes of the mounts above but for `tmp`. Kubernetes renews the files when a secret changes. */}}
{{- define "evenlane.secretVolumes" -}}
{{- with (include "evenlane.secretFiles" . | fromYaml).files }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret: {name: {{ .secret | quote }}, items: [{key: {{ .key | quote }}, path: {{ .setting }}}]}
      {{- end }}
{{- end }}
{{- with .Values.push.secrets.existingSecret }}
- name: push-secrets
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* Settings of the scaler. */}}
{{- define "evenlane.scalingEnv" -}}
{{- $scaling := .Values.scaling -}}
{{- if ne $scaling.mode "off" }}
- {name: EVENLANE_SCALING, value: {{ $scaling.mode }}}
- {name: EVENLANE_SCALING_MIN, value: {{ $scaling.min | quote }}}
- {name: EVENLANE_SCALING_MAX, value: {{ $scaling.max | quote }}}
{{- end }}
{{- if eq $scaling.mode "leader" }}
- {name: EVENLANE_SCALING_DEPLOYMENT, value: {{ include "evenlane.name" . }}}
{{- else if eq $scaling.mode "keda" }}
- {name: EVENLANE_SCALING_LISTEN, value: {{ printf "%s:%v" (ternary (printf "[%s]" .Values.http.host) .Values.http.host (contains ":" .Values.http.host)) $scaling.keda.port | quote }}}
{{- end }}
{{- end }}
