package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// overHTTP returns a catalog whose registry is an HTTP server with the given handler.
func overHTTP(t *testing.T, o catalog.Options, answer http.HandlerFunc) opened {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	o.Repository = func(_ context.Context, a subject.Address) (catalog.Store, error) {
		repo, err := remote.NewRepository(strings.TrimPrefix(s.URL, "http://") + "/" + a.Path())
		if err != nil {
			return nil, err
		}
		repo.PlainHTTP, repo.Client = true, catalog.Conditional(s.Client())
		return repo, nil
	}
	return open(t, o)
}

// TestListWithoutVersions shows that a list without versions means absence only if each page that the registry sends
// is a list of tags.
func TestListWithoutVersions(t *testing.T) {
	const link = `</v2/registry.acme.example/acme/widget/tags/list?last=1.0.0>; rel="next"`
	for _, tc := range []struct {
		pages  []string
		absent bool
	}{
		{[]string{`{"name":"x","tags":[]}`}, true},
		{[]string{`{"name":"x","tags":null}`}, true},
		{[]string{`{"tags":["latest"]}`}, true},
		{[]string{`{}`}, false},
		{[]string{`null`}, false},
		{[]string{`[]`}, false},
		{[]string{``}, false},
		{[]string{`{"status":"maintenance"}`}, false},
		{[]string{`{"errors":[{"code":"UNAVAILABLE"}]}`}, false},
		{[]string{`{"errors":[{"code":"UNAVAILABLE"}],"tags":null}`}, false},
		{[]string{`{"tags":["1.0.0"]}`, `{"status":"maintenance"}`}, false},
		{[]string{`{"tags":["latest"]}`, `{}`}, false},
	} {
		t.Run(fmt.Sprint(tc.pages), func(t *testing.T) {
			c := overHTTP(t, catalog.Options{TagTTL: -1}, func(w http.ResponseWriter, r *http.Request) {
				page := tc.pages[0]
				if r.URL.Query().Has("last") {
					page = tc.pages[1]
				} else if len(tc.pages) > 1 {
					w.Header().Set("Link", link)
				}
				fmt.Fprint(w, page)
			})
			if item, err := c.Versions(t.Context(), widget); err == nil || errors.Is(err, catalog.ErrAbsent) != tc.absent {
				t.Errorf("%+v, %v", item, err)
			}
		})
	}
}

// TestFullPageThatGetsANext shows that, if a full first page gets a second page, the new tag is found, although the
// first page and its ETag have not changed.
func TestFullPageThatGetsANext(t *testing.T) {
	second := false
	c := overHTTP(t, catalog.Options{TagTTL: -1}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("last") {
			fmt.Fprint(w, `{"tags":["1.5.0"]}`)
			return
		}
		if second {
			w.Header().Set("Link", "<"+r.URL.Path+`?last=1.4.0>; rel="next"`)
		}
		w.Header().Set("ETag", `"first page"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, `{"tags":["1.0.0","1.1.0","1.2.0","1.3.0","1.4.0"]}`)
	})
	for _, want := range []int{5, 6} {
		if item, err := c.Versions(t.Context(), widget); err != nil || len(item.Versions) != want {
			t.Errorf("%+v, %v; want %d versions", item, err, want)
		}
		second = true
	}
}
