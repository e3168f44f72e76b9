package transfer_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/templates"
)

// TestSpellings shows that the catalog is listed once for all modules of a run, that a module of the same run counts as stored, and
// that a module with tags needs no catalog.
func TestSpellings(t *testing.T) {
	var lists atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v2/_catalog":
			lists.Add(1)
			fmt.Fprint(w, `{"repositories":["registry.acme.example/azure.1/naming/azurerm","registry.acme.example/acme/net/aws"]}`)
		case "/v2/registry.acme.example/acme/net/aws/tags/list":
			fmt.Fprint(w, `{"name":"registry.acme.example/acme/net/aws","tags":["1.0.0"]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"errors":[{"code":"NAME_UNKNOWN"}]}`)
		}
	}))
	defer srv.Close()
	of, err := templates.Parse(strings.TrimPrefix(srv.URL, "http://")+"/${hostname}/${namespace}/${name}/${system}", module.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := registry.Open(registry.Options{Log: slog.New(slog.DiscardHandler), Templates: templates.Set{of}, Auth: auth.Options{Wire: wire.Options{PlainHTTP: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := transfer.NewSpellings(r)
	for _, tt := range []struct {
		module, other string
		lists         int32
	}{
		{"acme/net/aws", "", 0},
		{"azure/naming/azurerm", "Azure/naming/azurerm", 1},
		{"acme/VPC/aws", "", 1},
		{"acme/vpc/aws", "acme/VPC/aws", 1},
		{"Azure/naming/azurerm", "azure/naming/azurerm", 1},
	} {
		text := s.Warning(t.Context(), module.MustParseAddress("registry.acme.example/"+tt.module))
		if tt.other == "" && text != "" || !strings.Contains(text, tt.other) || lists.Load() != tt.lists {
			t.Errorf("%s: %q after %d lists", tt.module, text, lists.Load())
		}
	}
}
