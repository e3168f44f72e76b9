package origin_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/origin"
)

// TestModules shows where a host has its module registry, and which discovery documents are refused.
func TestModules(t *testing.T) {
	for name, tc := range map[string]struct {
		document   http.HandlerFunc
		want, says string
		lacks      bool
	}{
		"absolute path":   {doc(`{"providers.v1":"/p/","modules.v1":"/v1/modules/"}`), "https://" + host + "/v1/modules/", "", false},
		"whole URL":       {doc(`{"modules.v1":"https://api.acme.example/m/"}`), "https://api.acme.example/m/", "", false},
		"not there":       {http.NotFound, "", "does not provide a modules service", false},
		"other services":  {doc(`{"providers.v1":"/p/"}`), "", "does not provide a modules service", true},
		"no services":     {doc(`{}`), "", "does not provide a modules service", true},
		"null":            {doc(`null`), "", "does not provide a modules service", false},
		"other version":   {doc(`{"modules.v2":"/v2/modules/"}`), "", "does not support modules version 1", false},
		"plain HTTP":      {doc(`{"modules.v1":"http://registry.acme.example/m/"}`), "", "not an https URL", false},
		"no host":         {doc(`{"modules.v1":"https:///v1/modules/"}`), "", "not an https URL", false},
		"a URL too long":  {doc(`{"modules.v1":"/` + strings.Repeat("x", 2<<10) + `"}`), "", "at most 2048 bytes", false},
		"too long":        {doc(`{"modules.v1":"` + strings.Repeat("x", 64<<10) + `"}`), "", "more than 65536 bytes", false},
		"too many values": {doc(string(cost.Counted(1_000, `{"modules.v1":"/v1/","x":[`, `0`, `]}`))), "", "more than 1000 values", false},
		"HTML":            {text("text/html", `<html>`), "", "unsupported Content-Type", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			n.serve(host, tc.document)
			client, _ := n.client("")
			got, err := client.Modules(t.Context(), widget.ServiceHost())
			switch {
			case tc.says != "":
				checkError(t, err, tc.says, "")
				if errors.Is(err, origin.ErrNoModules) != tc.lacks {
					t.Errorf("%v: the host has no module registry: want %t", err, tc.lacks)
				}
			case err != nil || got.String() != tc.want:
				t.Errorf("%s, %v, want %s", got, err, tc.want)
			}
		})
	}
}
