package gateway

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/registries/moduledoc"
	"github.com/ocibridge/ocibridge/module"
)

// detailsJSON is the response of "Get a Specific Module" of the public registry, of which the gateway fills what the zip
// says. Language servers read inputs and outputs from it.
type detailsJSON struct {
	ID         string     `json:"id"`
	Namespace  string     `json:"namespace"`
	Name       string     `json:"name"`
	Provider   string     `json:"provider"` // the target system
	Version    string     `json:"version"`
	Source     string     `json:"source"`                 // where the module was fetched from, or ""
	Published  string     `json:"published_at,omitempty"` // the time of the push, in RFC 3339; "" if unknown
	Root       partJSON   `json:"root"`
	Submodules []partJSON `json:"submodules"`
	Examples   []partJSON `json:"examples"`
	Providers  []string   `json:"providers"`
}

type partJSON struct {
	Path         string               `json:"path"`
	Name         string               `json:"name"`
	Readme       string               `json:"readme"`
	Empty        bool                 `json:"empty"`
	Inputs       []inputJSON          `json:"inputs"`
	Outputs      []outputJSON         `json:"outputs"`
	Dependencies []moduledoc.Call     `json:"dependencies"`
	Providers    []requirementJSON    `json:"provider_dependencies"`
	Resources    []moduleResourceJSON `json:"resources"`
}

type inputJSON struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Description string `json:"description"`
	Default     string `json:"default"` // a text with JSON; "" if the input is required
	Required    bool   `json:"required"`
}

type outputJSON struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

type requirementJSON struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Source    string `json:"source"`
	Version   string `json:"version"`
}

type moduleResourceJSON struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// serveModuleDetails serves what a version of a module says about itself.
func (g *gateway) serveModuleDetails(w http.ResponseWriter, r *http.Request, a module.Address) error {
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	item, err := g.moduleVersion(ctx, r, a)
	if err != nil {
		return err
	}
	if item.Announced() {
		return errAbsent // a client that only reads details does not make the gateway store a version
	}
	found := item.Found
	blob := g.Catalog.StoredPackage(context.WithoutCancel(ctx), a, *found.Zip())
	manual, err := g.Manuals.Module(ctx, found, blob)
	if err != nil {
		return err
	}
	v, err := versionOf(r)
	if err != nil {
		return err
	}
	out := detailsJSON{
		ID:        strings.Join([]string{a.Namespace(), a.Name(), a.System(), v.String()}, "/"),
		Namespace: a.Namespace(), Name: a.Name(), Provider: a.System(), Version: v.String(), Source: found.Provenance.Location,
		Root: detailsOf(&manual.Root, a.Name()), Submodules: partsOf(manual.Modules), Examples: partsOf(manual.Examples), Providers: []string{a.System()},
	}
	if g.Changed != nil {
		if at := g.Changed(a, v); !at.IsZero() {
			out.Published = at.UTC().Format(time.RFC3339)
		}
	}
	answer, err := newAnswer(out)
	if err == nil {
		answer.write(w, r)
	}
	return err
}

func partsOf(parts []moduledoc.Part) []partJSON {
	out := make([]partJSON, len(parts))
	for i := range parts {
		out[i] = detailsOf(&parts[i], parts[i].Path[strings.LastIndexByte(parts[i].Path, '/')+1:])
	}
	return out
}

func detailsOf(p *moduledoc.Part, name string) partJSON {
	out := partJSON{
		Path: p.Path, Name: name, Readme: p.Readme, Empty: p.IsEmpty(), Inputs: []inputJSON{}, Outputs: []outputJSON{},
		Dependencies: p.Calls, Providers: []requirementJSON{}, Resources: []moduleResourceJSON{},
	}
	for _, in := range p.Inputs {
		// A default value that is not constant is no JSON, so it is left out.
		out.Inputs = append(out.Inputs, inputJSON{in.Name, in.Type, in.Description, string(in.Default), in.Required})
	}
	for _, o := range p.Outputs {
		out.Outputs = append(out.Outputs, outputJSON{o.Name, o.Description})
	}
	for _, need := range p.Requires {
		namespace, _, ok := strings.Cut(need.Source, "/")
		if parts := strings.Split(need.Source, "/"); ok && len(parts) == 3 {
			namespace = parts[1]
		} else if !ok {
			namespace = ""
		}
		out.Providers = append(out.Providers, requirementJSON{need.Name, namespace, need.Source, strings.Join(need.Version, ", ")})
	}
	for _, of := range p.Resources {
		if !of.Data {
			out.Resources = append(out.Resources, moduleResourceJSON{of.Name, of.Type})
		}
	}
	return out
}
