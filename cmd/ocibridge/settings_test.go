package main

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
)

// TestWhatServePrintsMeansTheEmbeddedRegistry checks that the template that serve prints
// selects the embedded registry. Users paste this template into the CLI configuration, and
// serve and push also read that file.
func TestWhatServePrintsMeansTheEmbeddedRegistry(t *testing.T) {
	const parts = "/${hostname}/${namespace}/${type}"
	for name, tc := range map[string]struct {
		running, file, template string
		own                     bool
	}{
		"by default":         {template: "localhost:8443" + parts, own: true},
		"by flag":            {running: "localhost:9443", file: "localhost:7443", template: "localhost:9443" + parts, own: true},
		"by the file":        {file: "localhost:9443", template: "localhost:9443" + parts, own: true},
		"another port":       {template: "localhost:5000" + parts},
		"another repository": {template: "localhost:8443/providers" + parts},
	} {
		s := settings{file: &config.Config{Gateway: config.Gateway{Listen: tc.file}}, cli: &cliconfig.Config{OCIMirrors: []cliconfig.OCIMirror{{Template: tc.template}}}}
		set, err := (&registryFlags{running: tc.running}).templatesOf(s, subject.Provider, "", nil)
		if err != nil || (len(set) == 0) != tc.own {
			t.Errorf("%s: %v, %v", name, set, err)
		}
	}
}
