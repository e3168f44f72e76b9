package main

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// TestFailureDocuments shows the JSON of failures: a provider and a module have keys of their own, and what is not known, or concerns
// none of them alone, has no key.
func TestFailureDocuments(t *testing.T) {
	one := provider.MustParseVersion("1.0.0")
	got, err := json.Marshal(failureDocuments([]reconcile.Failure{
		{Subject: provider.MustParseAddress("registry.acme.example/acme/widget"), Err: errors.New("no <tags>")},
		{Subject: provider.MustParseAddress("registry.acme.example/acme/widget"), Version: one, Err: hint.New("refused", "log in")},
		{Subject: module.MustParseAddress("registry.acme.example/platform/vpc/aws"), Version: one, Err: errors.New("gone")},
		{Err: hint.New("too large", "name fewer")},
	}))
	want := `[{"provider":"registry.acme.example/acme/widget","message":"no \u003ctags\u003e"},` +
		`{"provider":"registry.acme.example/acme/widget","version":"1.0.0","message":"refused","hint":"log in"},` +
		`{"module":"registry.acme.example/platform/vpc/aws","version":"1.0.0","message":"gone"},` +
		`{"message":"too large","hint":"name fewer"}]`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}
