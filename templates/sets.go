package templates

import (
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Sets are the templates of providers and of modules.
type Sets struct {
	Templates       Set
	ModuleTemplates ModuleSet
}

// TemplateOf returns the source of the template that selects a provider or a module. If no
// template selects it, the error wraps ErrNotSelected.
func (s Sets) TemplateOf(a subject.Address) (string, error) {
	if m, ok := a.(module.Address); ok {
		return sourceOf(s.ModuleTemplates.For(m))
	}
	return sourceOf(s.Templates.For(a.(provider.Address)))
}

func sourceOf[T interface{ Source() string }](t T, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return t.Source(), nil
}

// AddressOf returns the repository of a provider or a module. See [Set.Repository].
func (s Sets) AddressOf(a subject.Address) (ociaddr.Repository, error) {
	if m, ok := a.(module.Address); ok {
		return s.ModuleTemplates.Repository(m)
	}
	return s.Templates.Repository(a.(provider.Address))
}
