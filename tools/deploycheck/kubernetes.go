package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// kubernetes decodes objects strictly, as the API server does with fieldValidation=Strict.
// Unknown and repeated fields are errors.
func kubernetes(_ string, data []byte) (any, []error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apps.AddToScheme, autoscaling.AddToScheme, batch.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme, monitoring.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, []error{err}
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	var errs []error
	seen := map[string]bool{}
	documents := yaml.NewYAMLReader(newReader(data))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, append(errs, err)
		}
		if len(bytes.TrimSpace(stripComments(document))) == 0 {
			continue
		}
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		name := kind.Kind
		if m, err := meta.Accessor(object); err == nil {
			name += " " + m.GetName()
			for _, problem := range validation.IsDNS1123Label(m.GetName()) {
				errs = append(errs, fmt.Errorf("%s: %s", name, problem))
			}
		}
		if seen[name] {
			errs = append(errs, fmt.Errorf("%s is there twice", name))
		}
		seen[name] = true
		for _, problem := range examine(object) {
			errs = append(errs, fmt.Errorf("%s: %s", name, problem))
		}
		objects = append(objects, object)
	}
	return objects, append(errs, selectors(objects)...)
}

func stripComments(document []byte) []byte {
	var out []byte
	for line := range bytes.Lines(document) {
		if !bytes.HasPrefix(line, []byte("#")) && !bytes.HasPrefix(line, []byte("---")) {
			out = append(out, line...)
		}
	}
	return out
}

// examine returns the problems of an object. The files in deploy/ promise that no object
// has such a problem.
func examine(object runtime.Object) (problems []string) {
	switch o := object.(type) {
	case *apps.Deployment:
		problems = pod(o.Spec.Template.Spec)
		for _, c := range o.Spec.Template.Spec.Containers {
			if c.LivenessProbe == nil || c.ReadinessProbe == nil || c.StartupProbe == nil {
				problems = append(problems, "container "+c.Name+" lacks a probe")
			}
		}
		if rolling := o.Spec.Strategy.RollingUpdate; rolling == nil || rolling.MaxUnavailable == nil || rolling.MaxUnavailable.String() != "0" {
			problems = append(problems, "a rolling update may take pods away before there are new ones")
		}
	case *batch.CronJob:
		problems = pod(o.Spec.JobTemplate.Spec.Template.Spec)
		if o.Spec.ConcurrencyPolicy != batch.ForbidConcurrent {
			problems = append(problems, "jobs may run side by side")
		}
	}
	return problems
}

// pod checks the restricted profile of the Pod Security Standards. It also requires a
// read-only root file system, a memory limit, no service account token, and pinned images.
func pod(p core.PodSpec) (problems []string) {
	no := func(ok bool, problem string) {
		if !ok {
			problems = append(problems, problem)
		}
	}
	no(p.AutomountServiceAccountToken != nil && !*p.AutomountServiceAccountToken, "the pod gets a token of Kubernetes")
	no(!p.HostNetwork && !p.HostPID && !p.HostIPC, "the pod shares a namespace with the host")
	s := p.SecurityContext
	no(s != nil && is(s.RunAsNonRoot, true) && s.RunAsUser != nil && *s.RunAsUser > 0, "the pod may run as root")
	no(s != nil && s.SeccompProfile != nil && s.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault, "the pod has no seccomp profile")
	volumes := map[string]bool{}
	for _, v := range p.Volumes {
		no(!volumes[v.Name], "volume "+v.Name+" is there twice")
		no(v.HostPath == nil, "volume "+v.Name+" is a folder of the host")
		volumes[v.Name] = true
	}
	for _, c := range p.Containers {
		which := "container " + c.Name + ": "
		s := c.SecurityContext
		no(s != nil && is(s.AllowPrivilegeEscalation, false), which+"privileges may grow")
		no(s != nil && is(s.ReadOnlyRootFilesystem, true), which+"the root file system is writable")
		no(s != nil && s.Capabilities != nil && len(s.Capabilities.Drop) == 1 && s.Capabilities.Drop[0] == "ALL" && len(s.Capabilities.Add) == 0, which+"it has capabilities")
		no(s != nil && s.Privileged == nil && s.RunAsUser == nil && s.RunAsNonRoot == nil, which+"it overrides the pod's security")
		no(!c.Resources.Requests.Cpu().IsZero() && !c.Resources.Requests.Memory().IsZero(), which+"no resources are requested")
		no(!c.Resources.Limits.Memory().IsZero(), which+"its memory has no limit")
		if err := pinned(c.Image); err != nil {
			problems = append(problems, which+err.Error())
		}
		for _, m := range c.VolumeMounts {
			no(volumes[m.Name], which+"there is no volume "+m.Name)
			no(strings.HasPrefix(m.MountPath, "/"), which+"mount path "+m.MountPath)
		}
	}
	return problems
}

func is(b *bool, want bool) bool { return b != nil && *b == want }

// selectors checks that objects match. Each selector must select a pod, and each named
// port must exist.
func selectors(objects []runtime.Object) (errs []error) {
	var pods []map[string]string
	ports := map[string]bool{}
	for _, object := range objects {
		switch o := object.(type) {
		case *apps.Deployment:
			pods = append(pods, o.Spec.Template.Labels)
			for _, c := range o.Spec.Template.Spec.Containers {
				for _, p := range c.Ports {
					ports[p.Name] = true
				}
			}
		case *batch.CronJob:
			pods = append(pods, o.Spec.JobTemplate.Spec.Template.Labels)
		}
	}
	found := func(selector map[string]string) bool {
		for _, labels := range pods {
			all := len(selector) > 0
			for k, v := range selector {
				all = all && labels[k] == v
			}
			if all {
				return true
			}
		}
		return false
	}
	for _, object := range objects {
		var selector map[string]string
		switch o := object.(type) {
		case *apps.Deployment:
			selector = o.Spec.Selector.MatchLabels
		case *core.Service:
			selector = o.Spec.Selector
			for _, p := range o.Spec.Ports {
				if !ports[p.TargetPort.StrVal] {
					errs = append(errs, fmt.Errorf("service %s: no container has the port %s", o.Name, p.TargetPort.String()))
				}
			}
		case *policy.PodDisruptionBudget:
			selector = o.Spec.Selector.MatchLabels
		case *networking.NetworkPolicy:
			selector = o.Spec.PodSelector.MatchLabels
		default:
			continue
		}
		if !found(selector) {
			m, _ := meta.Accessor(object)
			errs = append(errs, fmt.Errorf("%T %s selects no pod", object, m.GetName()))
		}
	}
	return errs
}
