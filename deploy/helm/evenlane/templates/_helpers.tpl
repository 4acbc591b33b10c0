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
{{- if not (regexMatch "^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every [0-9hms]+|([0-9A-Za-z*?/,-]+ +){4}[0-9A-Za-z*?/,-]+)$" $v.reports.schedule) }}{{ fail (printf "reports.schedule %q is not a schedule of cron: write five fields, such as '5 * * * *'" $v.reports.schedule) }}{{ end -}}
{{- if not (regexMatch "^[A-Za-z0-9][A-Za-z0-9-]{0,63}$" $v.environment) }}{{ fail (printf "environment %q is not valid: 1 to 64 letters, digits or '-', the first a letter or digit" $v.environment) }}{{ end -}}
{{- include "evenlane.checkSettings" . -}}
{{- include "evenlane.checkBounds" . -}}
{{- include "evenlane.checkScaling" . -}}
{{- end }}

{{/* Refuses settings in `config` and `extraEnv` that the chart sets from other values. */}}
{{- define "evenlane.checkSettings" -}}
{{- $own := .Files.Get "files/own-values.yaml" | fromYaml -}}
{{- $config := .Values.config -}}
{{- range $setting, $_ := $config -}}
{{- if hasKey $own $setting }}{{ fail (printf "config.%s can't be set: %s" $setting (include "evenlane.instead" (get $own $setting))) }}{{ end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- $setting := .name | trimPrefix "EVENLANE_" | lower -}}
{{- if hasPrefix "EVENLANE_" .name -}}
{{- if hasKey $own $setting }}{{ fail (printf "extraEnv can't set %s: %s" .name (include "evenlane.instead" (get $own $setting))) }}{{ end -}}
{{- if or (hasKey $config $setting) (hasPrefix "scaling_" $setting) }}{{ fail (printf "extraEnv can't set %s: set config.%s instead" .name $setting) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A duration in seconds, or a size in bytes. */}}
{{- define "evenlane.amount" -}}
{{- $units := dict "none" 1 "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400 "KiB" 1024 "MiB" 1048576 "GiB" 1073741824 "kB" 1000 "MB" 1000000 "GB" 1000000000 -}}
{{- if kindIs "string" . }}{{ mulf (regexFind "^[0-9.]+" .) (get $units (regexFind "[A-Za-z]*$" . | default "none")) }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{/* Refuses durations and sizes with a unit that are out of bounds. The schema has the bounds of plain numbers. */}}
{{- define "evenlane.checkBounds" -}}
{{- $config := .Values.config -}}
{{- $bounds := .Files.Get "files/bounds.yaml" | fromYaml -}}
{{- range $setting, $value := $config -}}
{{- if and (kindIs "string" $value) (hasKey $bounds $setting) -}}
{{- $of := get $bounds $setting -}}
{{- $is := include "evenlane.amount" $value | float64 -}}
{{- if not (and $of.zero (eq $is 0.0)) -}}
{{- if or (lt $is $of.low) (gt $is $of.high) (and $of.whole (ne $is (floor $is))) }}{{ fail (printf "config.%s %q is not %s" $setting $value $of.what) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $keep := ternary $config.dead_letter_keep "30d" (hasKey $config "dead_letter_keep") -}}
{{- $window := ternary $config.duplicate_window "30s" (hasKey $config "duplicate_window") -}}
{{- if lt (include "evenlane.amount" $keep | float64) (include "evenlane.amount" $window | float64) }}{{ fail (printf "config.dead_letter_keep (%v) is less than config.duplicate_window (%v)" $keep $window) }}{{ end -}}
{{- $group := float64 (ternary $config.group_qps 50 (hasKey $config "group_qps")) -}}
{{- $most := float64 (ternary $config.max_group_qps 150 (hasKey $config "max_group_qps")) -}}
{{- if gt $group $most }}{{ fail (printf "config.group_qps (%v) is above config.max_group_qps (%v)" $group $most) }}{{ end -}}
{{- end }}

{{- define "evenlane.instead" -}}
{{- if . }}set {{ . }} instead{{ else }}the chart sets it{{ end -}}
{{- end }}

{{/* Refuses a scaler with which nodes don't start, or that can't reach Kubernetes. */}}
{{- define "evenlane.checkScaling" -}}
{{- $v := .Values -}}
{{- $policy := $v.config.scaling_policy | default "rules" -}}
{{- $target := $v.config.scaling_target | default "" | trim -}}
{{- $wait := regexFind "[0-9.]+(ms|s|m|h|d)?$" $target -}}
{{- $isTarget := regexMatch "^p[5-9][0-9](\\.[0-9]{1,4})? +wait +[0-9]+(\\.[0-9]+)?(ms|s|m|h|d)?$" $target -}}
{{- if $isTarget }}{{ $wait_s := include "evenlane.amount" $wait | float64 }}{{ $isTarget = and (ge $wait_s 0.001) (le $wait_s 86400.0) }}{{ end -}}
{{- if and $target (not $isTarget) }}{{ fail (printf "config.scaling_target %q is not a target: write p99 wait 2s, with p50 to p99.9999 and 1ms to 1d" $target) }}{{ end -}}
{{- if and (eq $policy "need") (not $target) }}{{ fail "config.scaling_policy is need, but has no target: set config.scaling_target, such as 'p99 wait 2s'" }}{{ end -}}
{{- if and (eq $policy "rules") $target }}{{ fail "config.scaling_target is set, but the policy rules has no target: leave it out, or set config.scaling_policy to need" }}{{ end -}}
{{- $above := float64 (ternary $v.config.scaling_projects_above 50 (hasKey $v.config "scaling_projects_above")) -}}
{{- $below := float64 (ternary $v.config.scaling_projects_below 2 (hasKey $v.config "scaling_projects_below")) -}}
{{- $cpu := ternary $v.config.scaling_cpu "90%" (hasKey $v.config "scaling_cpu") | toString | trimSuffix "%" | float64 -}}
{{- if and (eq $policy "rules") (not $cpu) (not $above) (not $below) }}{{ fail "config.scaling_policy is rules, but has no metric: set config.scaling_cpu, config.scaling_projects_above or config.scaling_projects_below" }}{{ end -}}
{{- if and $above $below (ge $below $above) }}{{ fail (printf "config.scaling_projects_below (%v) is not below config.scaling_projects_above (%v)" $below $above) }}{{ end -}}
{{- if and (eq $v.scaling.mode "leader") $v.networkPolicy.enabled $v.networkPolicy.egress.enabled (not $v.networkPolicy.egress.to) }}{{ fail "scaling.mode is leader, but networkPolicy.egress allows nobody to reach the Kubernetes API: add its address to networkPolicy.egress.to" }}{{ end -}}
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
{{- range $server, $of := dict "nats" $v.nats.clientCertificate "etcd" $v.etcd.clientCertificate "http" $v.http.certificate }}
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

{{/* The name of the Service. */}}
{{- define "evenlane.host" -}}
{{ include "evenlane.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "evenlane.scheme" -}}
{{- if .Values.http.certificate.existingSecret }}https{{ else }}http{{ end -}}
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
