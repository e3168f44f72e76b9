{{- define "ocibridge.name" -}}
{{- .Values.nameOverride | default .Chart.Name -}}
{{- end }}

{{/* The name has at most 47 characters, because -sync must fit into the 52 characters of a CronJob's name. */}}
{{- define "ocibridge.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains (include "ocibridge.name" .) .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 47 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ocibridge.name" .) | replace "." "-" | trunc 47 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* The entries of all maps in a list. If several maps have a key, the last one wins. */}}
{{- define "ocibridge.merged" -}}
{{- $all := dict -}}
{{- range . -}}
{{- range $key, $value := . -}}
{{- $_ := set $all $key $value -}}
{{- end -}}
{{- end -}}
{{ toYaml $all }}
{{- end }}

{{/* The labels of a component: (list . "gateway"), and more maps of labels. None replaces a label that selects pods. */}}
{{- define "ocibridge.labels" -}}
{{- $top := index . 0 -}}
{{- $own := dict
  "app.kubernetes.io/version" $top.Chart.AppVersion
  "app.kubernetes.io/managed-by" $top.Release.Service
  "helm.sh/chart" (printf "%s-%s" $top.Chart.Name $top.Chart.Version | replace "+" "_") -}}
{{- include "ocibridge.merged" (concat (list $own $top.Values.commonLabels) (slice . 2) (list (include "ocibridge.selector" . | fromYaml))) -}}
{{- end }}

{{- define "ocibridge.selector" -}}
{{- $top := index . 0 -}}
app.kubernetes.io/name: {{ include "ocibridge.name" $top }}
app.kubernetes.io/instance: {{ $top.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "ocibridge.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "ocibridge.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{- define "ocibridge.image" -}}
{{- $repository := required "image.repository: where have you put the image?" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{- define "ocibridge.scheme" -}}
{{- ternary "https" "http" (ne .Values.tls.secretName "") -}}
{{- end }}

{{- define "ocibridge.servicePort" -}}
{{- .Values.service.port | default (ternary 443 80 (ne .Values.tls.secretName "")) -}}
{{- end }}

{{/* "true" if the gateway requires tokens, otherwise nothing. */}}
{{- define "ocibridge.tokens" -}}
{{- if regexMatch "(?m)^\\s*(token|oidc)\\s+[\"A-Za-z_]" .Values.gateway.settings }}true{{ end -}}
{{- end }}

{{/* The URL at which clients reach the gateway, or nothing. The default is the URL of the Ingress. */}}
{{- define "ocibridge.publicURL" -}}
{{- if .Values.gateway.publicURL -}}
{{- .Values.gateway.publicURL -}}
{{- else if and .Values.ingress.enabled .Values.ingress.host (not (contains "*" .Values.ingress.host)) -}}
{{- printf "https://%s/" .Values.ingress.host -}}
{{- end -}}
{{- end }}

{{/* The complete ocibridge.hcl. */}}
{{- define "ocibridge.hcl" -}}
{{- if regexMatch "(?m)^\\s*gateway\\s*\\{" .Values.config }}
{{- fail "config: the chart writes the gateway block; put more lines for it into gateway.settings" }}
{{- end }}
{{- required "config: what does ocibridge.hcl say? It needs an oci_mirror block at least" .Values.config | trim }}

gateway {
  listen         = ":8443"
  metrics_listen = ":{{ int .Values.metrics.port }}"
{{- with include "ocibridge.publicURL" . }}
  public_url     = {{ . | toJson }}
{{- end }}
{{- if .Values.gateway.verifyRequired }}
  verify = "required"
{{- end }}
{{- if .Values.tls.secretName }}
  tls {
    cert_file = "/etc/ocibridge/tls/tls.crt"
    key_file  = "/etc/ocibridge/tls/tls.key"
  }
{{- else }}
  http = true
{{- end }}
{{- if .Values.cache.enabled }}
  cache {
    directory = "/var/cache/ocibridge"
    max_size  = "{{ int .Values.cache.sizeGiB }}GiB"
  }
{{- else }}
  cache {
    enabled = false
  }
{{- end }}
{{- if .Values.capabilityKeys.secretName }}
  capability_key_file = "/etc/ocibridge/keys/capability.keys"
{{- end }}
  shutdown_delay   = "{{ int .Values.shutdown.delaySeconds }}s"
  shutdown_timeout = "{{ int .Values.shutdown.timeoutSeconds }}s"
{{- with .Values.gateway.settings }}
{{ . | trim | indent 2 }}
{{- end }}
}
{{- end }}

{{/* The environment variables of the containers of the gateway and of sync: (list . "login secret"). */}}
{{- define "ocibridge.env" -}}
{{- $top := index . 0 -}}
- name: HOME
  value: /tmp
- name: XDG_DATA_HOME
  value: /tmp/data
{{- if index . 1 }}
- name: DOCKER_CONFIG
  value: /etc/ocibridge/docker
{{- end }}
{{- with $top.Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ocibridge.mounts" -}}
{{- $top := index . 0 -}}
- name: config
  mountPath: /etc/ocibridge/config
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- if index . 1 }}
- name: docker
  mountPath: /etc/ocibridge/docker
  readOnly: true
{{- end }}
{{- with $top.Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ocibridge.volumes" -}}
{{- $top := index . 0 -}}
- name: config
  configMap:
    name: {{ include "ocibridge.fullname" $top }}
{{- with index . 1 }}
- name: docker
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items:
      - key: .dockerconfigjson
        path: config.json
{{- end }}
{{- with $top.Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ocibridge.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- if kindIs "bool" .Values.hostUsers }}
hostUsers: {{ .Values.hostUsers }}
{{- end }}
# The variables of a service that is called ocibridge would begin as ocibridge's own do.
enableServiceLinks: false
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ocibridge.egress" -}}
{{- with .Values.networkPolicy.dnsPorts }}
- ports:
    {{- range . }}
    - port: {{ int . }}
      protocol: UDP
    - port: {{ int . }}
      protocol: TCP
    {{- end }}
{{- end }}
{{- with .Values.networkPolicy.egressPorts }}
- ports:
    {{- range . }}
    - port: {{ int . }}
      protocol: TCP
    {{- end }}
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}
