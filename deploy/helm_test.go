package deploy_test

import (
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// object contains the fields of a rendered object that the tests check.
type object struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Data map[string]string
	Spec struct {
		Template struct{ Spec podSpec }
		// Fields of services and their monitors.
		Selector  map[string]any
		Ports     []struct{ Name, TargetPort any }
		Endpoints []struct{ Port, Path, Scheme string }
		// Fields of network policies.
		Ingress []struct{ Ports []struct{ Port any } }
		Egress  []struct {
			Ports []struct {
				Port     any
				Protocol string
			}
		}
		JobTemplate struct { // of a CronJob
			Spec struct{ Template struct{ Spec podSpec } }
		}
	}
}

type podSpec struct {
	SecurityContext               map[string]any
	Volumes                       []map[string]any
	TerminationGracePeriodSeconds int
	Containers                    []struct {
		SecurityContext                             map[string]any
		Args                                        []string
		Env                                         []struct{ Name, Value string }
		Ports                                       []port
		StartupProbe, LivenessProbe, ReadinessProbe probe
	}
}

type port struct {
	Name          string
	ContainerPort int
}

type probe struct {
	HTTPGet struct{ Path, Port, Scheme string }
}

// kubeVersions are the oldest supported version of Kubernetes, and a newer version.
var kubeVersions = []string{"1.27.0", "1.34.0"}

func template(t *testing.T, args ...string) []byte {
	t.Helper()
	return output(t, command(t, "helm", slices.Concat([]string{"template", "release", "helm/ocibridge", "--kube-version", kubeVersions[1]}, args)...))
}

// admitted sets a user in the pods that have none, as OpenShift's restricted-v2 does.
func admitted(objects []byte) []byte {
	if bytes.Contains(objects, []byte("runAsUser")) {
		return objects
	}
	return regexp.MustCompile(`(?m)^( +)runAsNonRoot: true$`).ReplaceAll(objects, []byte("$0\n${1}runAsUser: 1000680000"))
}

// rendered returns the objects of a kind that the chart renders for a values file.
func rendered(t *testing.T, values, kind string, args ...string) (found []object) {
	t.Helper()
	for _, o := range checked[[]object](t, "kubernetes", admitted(template(t, append(args, "-f", values)...))) {
		if o.Kind == kind {
			found = append(found, o)
		}
	}
	return found
}

func TestChart(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("helm/ocibridge/ci/*-values.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	output(t, command(t, "helm", "lint", "--strict", "helm/ocibridge"))
	kinds := map[string]bool{}
	for _, values := range files {
		t.Run(strings.TrimSuffix(filepath.Base(values), ".yaml"), func(t *testing.T) {
			output(t, command(t, "helm", "lint", "--strict", "helm/ocibridge", "-f", values))
			for _, version := range kubeVersions {
				for _, o := range checked[[]object](t, "kubernetes", admitted(template(t, "-f", values, "--kube-version", version))) {
					kinds[o.Kind] = true
					if text, ok := o.Data["ocibridge.hcl"]; ok {
						checkConfig(t, text, "HARBOR_PASSWORD=secret", "OPERATOR_TOKEN_SHA256="+strings.Repeat("0", 64))
					}
				}
			}
		})
	}
	for _, kind := range []string{"ConfigMap", "CronJob", "Deployment", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount", "ServiceMonitor"} {
		if !kinds[kind] {
			t.Errorf("no values file makes the chart render a %s", kind)
		}
	}
}

// TestChartPublicURL shows that the chart sets the gateway's public URL. The host of this URL is the host name
// in the addresses of the gateway's own providers.
func TestChartPublicURL(t *testing.T) {
	t.Parallel()
	const minimal, host = "helm/ocibridge/ci/minimal-values.yaml", "ingress.enabled=true,ingress.host=providers.example.com"
	for set, want := range map[string]string{
		host: `public_url     = "https://providers.example.com/"`,
		host + ",gateway.publicURL=https://other.example.com/": `public_url     = "https://other.example.com/"`,
	} {
		text := rendered(t, minimal, "ConfigMap", "--set", set)[0].Data["ocibridge.hcl"]
		checkConfig(t, text)
		if !strings.Contains(text, want) || strings.Count(text, "public_url") != 1 {
			t.Errorf("%s: no %s in\n%s", set, want, text)
		}
	}
	if text := rendered(t, minimal, "ConfigMap")[0].Data["ocibridge.hcl"]; strings.Contains(text, "public_url") {
		t.Errorf("without a name:\n%s", text)
	}
}

// TestChartGracePeriod shows that the grace period of a pod is long enough for running downloads to complete.
func TestChartGracePeriod(t *testing.T) {
	t.Parallel()
	for _, set := range []string{"shutdown.delaySeconds=10", "shutdown.timeoutSeconds=3600"} {
		const values = "helm/ocibridge/ci/minimal-values.yaml"
		text := rendered(t, values, "ConfigMap", "--set", set)[0].Data["ocibridge.hcl"]
		total := 0
		for _, m := range regexp.MustCompile(`shutdown_(?:delay|timeout) *= "([0-9]+)s"`).FindAllStringSubmatch(text, -1) {
			seconds, _ := strconv.Atoi(m[1])
			total += seconds
		}
		grace := rendered(t, values, "Deployment", "--set", set)[0].Spec.Template.Spec.TerminationGracePeriodSeconds
		if total < 300 || grace <= total {
			t.Errorf("%s: terminationGracePeriodSeconds is %d, want more than %d", set, grace, total)
		}
	}
}

// TestChartNames shows that the names of objects are valid in Kubernetes for any name of the release. For
// example, the name of a CronJob has at most 52 characters.
func TestChartNames(t *testing.T) {
	t.Parallel()
	const values = "helm/ocibridge/ci/full-values.yaml"
	for _, release := range []string{strings.Repeat("long", 13), "with.dots", "x" + strings.Repeat(".ocibridge", 5)} {
		cmd := command(t, "helm", "template", release, "helm/ocibridge", "--kube-version", kubeVersions[1], "-f", values, "--set", "nameOverride=")
		for _, o := range checked[[]object](t, "kubernetes", output(t, cmd)) {
			if o.Kind == "CronJob" && len(o.Metadata.Name) > 52 {
				t.Errorf("release %s: %s is called %s", release, o.Kind, o.Metadata.Name)
			}
		}
	}
}

// TestChartMetrics shows that Prometheus can scrape the pods without a token, and that the clients' service
// does not expose metrics.
func TestChartMetrics(t *testing.T) {
	t.Parallel()
	const values = "helm/ocibridge/ci/full-values.yaml"
	monitor := rendered(t, values, "ServiceMonitor", "--set", "metrics.port=9999")[0]
	want := monitor.Spec.Selector["matchLabels"].(map[string]any)
	var found int
	for _, service := range rendered(t, values, "Service", "--set", "metrics.port=9999") {
		matches := len(want) > 0
		for label, value := range want {
			matches = matches && service.Metadata.Labels[label] == value
		}
		if len(service.Spec.Ports) != 1 {
			t.Errorf("service %s has %d ports", service.Metadata.Name, len(service.Spec.Ports))
		}
		if !matches {
			continue
		}
		found++
		if port := service.Spec.Ports[0]; port.Name != monitor.Spec.Endpoints[0].Port || port.TargetPort != "metrics" {
			t.Errorf("the monitor looks at %+v, and service %s has %+v", monitor.Spec.Endpoints, service.Metadata.Name, port)
		}
	}
	if found != 1 {
		t.Errorf("%d services are monitored", found)
	}
	ports := rendered(t, values, "Deployment", "--set", "metrics.port=9999")[0].Spec.Template.Spec.Containers[0].Ports
	if !slices.Contains(ports, port{"metrics", 9999}) {
		t.Errorf("the pod has the ports %v", ports)
	}
	open := false
	for _, rule := range rendered(t, values, "NetworkPolicy", "--set", "metrics.port=9999")[0].Spec.Ingress {
		open = open || rule.Ports[0].Port == 9999.0
	}
	if !open {
		t.Error("no network policy lets Prometheus in")
	}
}

// TestChartOnOpenShift shows that restricted-v2 of OpenShift admits the pods: this policy sets the user and the groups
// itself, requires what the restricted profile of Kubernetes requires, and allows these kinds of volumes. The gateway
// reaches the cluster's DNS pods.
func TestChartOnOpenShift(t *testing.T) {
	t.Parallel()
	const values = "helm/ocibridge/ci/openshift-values.yaml"
	var pods []podSpec
	for _, o := range append(rendered(t, values, "Deployment"), rendered(t, values, "CronJob")...) {
		pods = append(pods, o.Spec.Template.Spec, o.Spec.JobTemplate.Spec.Template.Spec)
	}
	pods = slices.DeleteFunc(pods, func(p podSpec) bool { return len(p.Containers) == 0 })
	if len(pods) != 2 {
		t.Fatalf("%d pods, want the gateway's and the one of sync", len(pods))
	}
	for _, p := range pods {
		for _, context := range []map[string]any{p.SecurityContext, p.Containers[0].SecurityContext} {
			if user, found := context["runAsUser"]; found && user != 1000680000.0 {
				t.Errorf("runAsUser is %v", user)
			}
			for _, name := range []string{"runAsGroup", "fsGroup", "supplementalGroups", "seLinuxOptions", "privileged"} {
				if value, found := context[name]; found {
					t.Errorf("%s is %v", name, value)
				}
			}
		}
		for _, volume := range p.Volumes {
			for kind := range volume {
				if !slices.Contains([]string{"name", "configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}, kind) {
					t.Errorf("a volume of the kind %s", kind)
				}
			}
		}
	}
	for set, want := range map[string]any{"x": 5353.0, "networkPolicy.dnsPorts={54}": 54.0} {
		for _, policy := range rendered(t, values, "NetworkPolicy", "--set", strings.TrimPrefix(set, "x")) {
			open := map[string]bool{}
			for _, rule := range policy.Spec.Egress {
				for _, port := range rule.Ports {
					open[port.Protocol] = open[port.Protocol] || port.Port == want
				}
			}
			if !open["UDP"] || !open["TCP"] {
				t.Errorf("%s: port %v is open for %v", policy.Metadata.Name, want, open)
			}
		}
	}
}

// TestChartSecurityContexts shows that values replace the security contexts of the chart, which stay complete without them.
func TestChartSecurityContexts(t *testing.T) {
	t.Parallel()
	const values = "helm/ocibridge/ci/minimal-values.yaml"
	for set, want := range map[string][2]any{
		"replicaCount=1": {65532.0, 65532.0},
		"podSecurityContext.runAsUser=1000,podSecurityContext.fsGroup=2000": {1000.0, 2000.0},
	} {
		pod := rendered(t, values, "Deployment", "--set", set)[0].Spec.Template.Spec
		if got := [2]any{pod.SecurityContext["runAsUser"], pod.SecurityContext["fsGroup"]}; got != want {
			t.Errorf("%s: %v, want %v", set, got, want)
		}
		if pod.SecurityContext["runAsNonRoot"] != true || pod.Containers[0].SecurityContext["readOnlyRootFilesystem"] != true {
			t.Errorf("%s: %v, %v", set, pod.SecurityContext, pod.Containers[0].SecurityContext)
		}
	}
}

// TestChartValues shows that each value which a cluster or its policies dictate has its place in the rendered objects.
// A place of both pods is written without the path to their templates.
func TestChartValues(t *testing.T) {
	t.Parallel()
	const values = "helm/ocibridge/ci/minimal-values.yaml"
	both := []string{"Deployment spec.template.", "CronJob spec.jobTemplate.spec.template."}
	for _, c := range []struct {
		set    string // a value of the chart in JSON
		places []string
		path   string
		want   any
	}{
		{`imagePullSecrets=[{"name":"pull"}]`, both, "spec.imagePullSecrets.0.name", "pull"},
		{`image.digest="sha256:` + strings.Repeat("1", 64) + `"`, both, "spec.containers.0.image", "registry.example.com/ocibridge@sha256:" + strings.Repeat("1", 64)},
		{`image.pullPolicy="Always"`, both, "spec.containers.0.imagePullPolicy", "Always"},
		{`priorityClassName="high"`, both, "spec.priorityClassName", "high"},
		{`runtimeClassName="gvisor"`, both, "spec.runtimeClassName", "gvisor"},
		{`nodeSelector={"pool":"infra"}`, both, "spec.nodeSelector.pool", "infra"},
		{`tolerations=[{"key":"dedicated","operator":"Exists"}]`, both, "spec.tolerations.0.key", "dedicated"},
		{`affinity={"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[]}]}}}`, both, "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.#", 1.0},
		{`topologySpreadConstraints=[{"maxSkew":2,"topologyKey":"rack","whenUnsatisfiable":"DoNotSchedule"}]`, both[:1], "spec.topologySpreadConstraints.0.topologyKey", "rack"},
		{`hostAliases=[{"ip":"10.0.0.7","hostnames":["harbor"]}]`, both, "spec.hostAliases.0.ip", "10.0.0.7"},
		{`dnsPolicy="None"`, both, "spec.dnsPolicy", "None"},
		{`dnsConfig={"nameservers":["10.0.0.53"]}`, both, "spec.dnsConfig.nameservers.0", "10.0.0.53"},
		{`hostUsers=false`, both, "spec.hostUsers", false},
		{`hostUsers=null`, both, "spec.hostUsers", nil},
		{`podSecurityContext.fsGroup=2000`, both, "spec.securityContext.fsGroup", 2000.0},
		{`securityContext.capabilities={"drop":["ALL"]}`, both, "spec.containers.0.securityContext.capabilities.drop.0", "ALL"},
		{`serviceAccount={"create":false,"name":"cloud"}`, both, "spec.serviceAccountName", "cloud"},
		{`serviceAccount.annotations={"role":"arn"}`, []string{"ServiceAccount "}, "metadata.annotations.role", "arn"},
		{`commonLabels={"team":"a"}`, []string{both[0], both[1], "Deployment ", "CronJob ", "Service ", "ConfigMap ", "ServiceAccount ", "NetworkPolicy ", "PodDisruptionBudget "}, "metadata.labels.team", "a"},
		{`podLabels={"team":"a"}`, both, "metadata.labels.team", "a"},
		{`podAnnotations={"owner":"a"}`, both, "metadata.annotations.owner", "a"},
		{`deploymentAnnotations={"exempt":"true"}`, []string{"Deployment "}, "metadata.annotations.exempt", "true"},
		{`sync.annotations={"exempt":"true"}`, []string{"CronJob "}, "metadata.annotations.exempt", "true"},
		{`sync.podLabels={"mesh":""}`, both[1:], "metadata.labels.mesh", ""},
		{`sync.podAnnotations={"sidecar":"false"}`, both[1:], "metadata.annotations.sidecar", "false"},
		{`sync.resources={"requests":{"cpu":"1","memory":"1Gi"},"limits":{"memory":"2Gi"}}`, both[1:], "spec.containers.0.resources.limits.memory", "2Gi"},
		{`resources.limits={"memory":"2Gi"}`, both[:1], "spec.containers.0.resources.limits.memory", "2Gi"},
		{`env=[{"name":"HTTPS_PROXY","value":"http://proxy"}]`, both, "spec.containers.0.env.2.value", "http://proxy"},
		{`envFrom=[{"secretRef":{"name":"more"}}]`, both, "spec.containers.0.envFrom.0.secretRef.name", "more"},
		{`volumes=[{"name":"ca","configMap":{"name":"ca"}}]`, both, "spec.volumes.1.configMap.name", "ca"},
		{`volumeMounts=[{"name":"tmp","mountPath":"/more"}]`, both, "spec.containers.0.volumeMounts.2.mountPath", "/more"},
		{`cache.volume={"persistentVolumeClaim":{"claimName":"fast"}}`, both[:1], "spec.volumes.2.persistentVolumeClaim.claimName", "fast"},
		{`startupProbe.failureThreshold=90`, both[:1], "spec.containers.0.startupProbe.failureThreshold", 90.0},
		{`livenessProbe.timeoutSeconds=30`, both[:1], "spec.containers.0.livenessProbe.timeoutSeconds", 30.0},
		{`readinessProbe.initialDelaySeconds=3`, both[:1], "spec.containers.0.readinessProbe.initialDelaySeconds", 3.0},
		{`updateStrategy.rollingUpdate.maxSurge="25%"`, []string{"Deployment "}, "spec.strategy.rollingUpdate.maxSurge", "25%"},
		{`minReadySeconds=15`, []string{"Deployment "}, "spec.minReadySeconds", 15.0},
		{`revisionHistoryLimit=2`, []string{"Deployment "}, "spec.revisionHistoryLimit", 2.0},
		{`podDisruptionBudget.maxUnavailable="50%"`, []string{"PodDisruptionBudget "}, "spec.maxUnavailable", "50%"},
		{`service.annotations={"lb":"internal"}`, []string{"Service "}, "metadata.annotations.lb", "internal"},
		{`service.labels={"lb":"internal"}`, []string{"Service "}, "metadata.labels.lb", "internal"},
		{`service={"type":"NodePort","nodePort":30443}`, []string{"Service "}, "spec.ports.0.nodePort", 30443.0},
		{`service={"type":"LoadBalancer","externalTrafficPolicy":"Local"}`, []string{"Service "}, "spec.externalTrafficPolicy", "Local"},
		{`service={"type":"LoadBalancer","loadBalancerClass":"internal"}`, []string{"Service "}, "spec.loadBalancerClass", "internal"},
		{`service={"type":"LoadBalancer","loadBalancerSourceRanges":["10.0.0.0/8"]}`, []string{"Service "}, "spec.loadBalancerSourceRanges.0", "10.0.0.0/8"},
		{`service.ipFamilyPolicy="RequireDualStack"`, []string{"Service "}, "spec.ipFamilyPolicy", "RequireDualStack"},
		{`service.ipFamilies=["IPv6"]`, []string{"Service "}, "spec.ipFamilies.0", "IPv6"},
		{`ingress={"enabled":true,"host":"providers.example.com","className":"internal"}`, []string{"Ingress "}, "spec.ingressClassName", "internal"},
		{`ingress={"enabled":true,"host":"providers.example.com","annotations":{"issuer":"ca"}}`, []string{"Ingress "}, "metadata.annotations.issuer", "ca"},
		{`serviceMonitor={"enabled":true,"labels":{"prometheus":"main"}}`, []string{"ServiceMonitor "}, "metadata.labels.prometheus", "main"},
		{`serviceMonitor={"enabled":true,"namespace":"monitoring"}`, []string{"ServiceMonitor "}, "metadata.namespace", "monitoring"},
		{`serviceMonitor={"enabled":true,"namespace":"monitoring"}`, []string{"ServiceMonitor "}, "spec.namespaceSelector.matchNames.0", "default"},
		{`networkPolicy.from=[{"namespaceSelector":{"matchLabels":{"team":"a"}}}]`, []string{"NetworkPolicy "}, "spec.ingress.0.from.0.namespaceSelector.matchLabels.team", "a"},
		{`networkPolicy.extraEgress=[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8"}}]}]`, []string{"NetworkPolicy "}, "spec.egress.2.to.0.ipBlock.cidr", "10.0.0.0/8"},
		{`extraObjects=[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"{{ .Release.Name }}-more"}}]`, []string{"Secret "}, "metadata.name", "release-more"},
		// The pods get no variables of services, and labels that select pods stay.
		{`replicaCount=1`, both, "spec.enableServiceLinks", false},
		{`podLabels={"app.kubernetes.io/component":"mine"}`, both[:1], "metadata.labels.app~kubernetes~io/component", "gateway"},
		// What is for one component wins over what is for all.
		{`podLabels={"mesh":"on"}` + "\n" + `sync.podLabels={"mesh":"off"}`, both[1:], "metadata.labels.mesh", "off"},
		{`commonLabels={"team":"a"}` + "\n" + `podLabels={"team":"b"}`, both, "metadata.labels.team", "b"},
	} {
		t.Run(c.set, func(t *testing.T) {
			t.Parallel()
			args := []string{"-f", values, "--set", "sync.enabled=true"}
			for set := range strings.SplitSeq(c.set, "\n") {
				args = append(args, "--set-json", set)
			}
			objects := checked[[]map[string]any](t, "kubernetes", template(t, args...))
			for _, place := range c.places {
				kind, path, _ := strings.Cut(place, " ")
				i := slices.IndexFunc(objects, func(o map[string]any) bool { return o["kind"] == kind })
				if i < 0 {
					t.Errorf("no %s", kind)
				} else if got := field(objects[i], path+c.path); got != c.want {
					t.Errorf("%s: %s%s is %v, want %v", kind, path, c.path, got, c.want)
				}
			}
		})
	}
}

// field returns the field of an object at a path. In a list, the next element of the path is an index, or # for the
// length. A ~ is a dot in the name of a field.
func field(at any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch parent := at.(type) {
		case map[string]any:
			at = parent[strings.ReplaceAll(name, "~", ".")]
		case []any:
			i, err := strconv.Atoi(name)
			switch {
			case name == "#":
				at = float64(len(parent))
			case err == nil && i < len(parent):
				at = parent[i]
			default:
				return nil
			}
		default:
			return nil
		}
	}
	return at
}

func TestChartRefuses(t *testing.T) {
	t.Parallel()
	const minimal, full = "helm/ocibridge/ci/minimal-values.yaml", "helm/ocibridge/ci/full-values.yaml"
	for _, c := range []struct {
		name, values, set, want string
	}{
		{"no image", minimal, "image.repository=", "where have you put the image?"},
		{"tokens in HCL's other way", minimal, "gateway.settings=token ci {}", "capabilityKeys.secretName"},
		{"two gateway blocks", minimal, "config=gateway {}", "gateway.settings"},
		{"more pods at least than at most", minimal, "autoscaling.enabled=true,autoscaling.minReplicas=7", "above maxReplicas"},
		{"a port for two", minimal, "metrics.port=8443", "metrics/port"},
		{"no configuration", minimal, "config=", "what does ocibridge.hcl say?"},
		{"a misspelt value", minimal, "replicas=3", "replicas"},
		{"the tag latest", minimal, "image.tag=latest", "image/tag"},
		{"a public URL that clients refuse", minimal, "gateway.publicURL=http://providers.example.com/", "publicURL"},
		{"no time for downloads", minimal, "shutdown.timeoutSeconds=0", "shutdown"},
		{"many pods with tokens and each with a key of its own", full, "capabilityKeys.secretName=", "capabilityKeys.secretName"},
		{"a security context that is none", minimal, "podSecurityContext=none", "podSecurityContext"},
		{"an unknown family of addresses", minimal, "service.ipFamilies={IPv5}", "ipFamilies"},
		{"a probe of something else", minimal, "livenessProbe.httpGet.path=/", "httpGet"},
		{"an unknown update strategy", minimal, "updateStrategy.type=OnDelete", "updateStrategy/type"},
		{"an unknown DNS policy", minimal, "dnsPolicy=Nothing", "dnsPolicy"},
		{"an ingress for no host", minimal, "ingress.enabled=true", "ingress.host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			refused(t, command(t, "helm", "template", "release", "helm/ocibridge", "--kube-version", kubeVersions[1], "-f", c.values, "--set", c.set), c.want)
		})
	}
}

// TestChartChecks shows that the checks of rendered objects find errors. Each case adds one error to correct
// objects.
func TestChartChecks(t *testing.T) {
	t.Parallel()
	good := template(t, "-f", "helm/ocibridge/ci/full-values.yaml")
	for _, c := range []struct {
		name, from, to, want string
	}{
		{"unknown field", "maxSurge: 1", "maxSurge: 1\n      maxSurges: 1", "unknown field"},
		{"wrong type", "periodSeconds: 2", "periodSeconds: two", "cannot unmarshal"},
		{"unknown kind", "kind: ServiceMonitor", "kind: ServiceMonitors", "no kind"},
		{"root", "runAsNonRoot: true", "runAsNonRoot: false", "may run as root"},
		{"writable", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "writable"},
		{"privileges", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "privileges may grow"},
		{"capabilities", "- ALL", "- NET_RAW", "capabilities"},
		{"unbounded", "memory: 512Mi", "cpu: 1", "no limit"},
		{"no probe", "livenessProbe:", "readinessProbe:", "readinessProbe"},
		{"image", "@sha256:" + strings.Repeat("0", 64), ":1", "exact version"},
		{"port", "targetPort: https", "targetPort: http", "no container has the port"},
		{"volume", "        - name: keys\n          secret", "        - name: key\n          secret", "no volume keys"},
		{"rolling update", "maxUnavailable: 0", "maxUnavailable: 1", "rolling update"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := bytes.Replace(good, []byte(c.from), []byte(c.to), 1)
			if bytes.Equal(bad, good) {
				t.Fatalf("%q is not in the rendered objects", c.from)
			}
			cmd := command(t, "deploycheck", "kubernetes", "-")
			cmd.Stdin = bytes.NewReader(bad)
			refused(t, cmd, c.want)
		})
	}
}
