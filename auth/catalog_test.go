package auth

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// TestLinkWithoutAQuery shows that a list fails if the link to its next page has another
// path and no query. The link does not say where the next page begins, so requesting the
// list again would never end.
func TestLinkWithoutAQuery(t *testing.T) {
	asked := 0
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Link", `</v2/p>; rel="next"`)
		fmt.Fprint(w, `{"name":"acme/x","tags":["1.0.0"]}`)
	}))
	defer f.Close()
	repo := mustOpen(t, New(Options{}), ociaddr.Repository{Registry: ociaddr.Registry(f.Listener.Addr().String()), Name: "acme/x"})
	err := repo.Tags(t.Context(), "", func([]string) error { return nil })
	if err == nil || !strings.Contains(err.Error(), `links to "/v2/p", which is not a page of the same list`) || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

// TestLinksThatLeadElsewhere shows that lists of tags and repositories are read to their
// end even if the links to their next pages have a wrong host or path. Requests to these
// wrong URLs would end the list early.
func TestLinksThatLeadElsewhere(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	for name, link := range map[string]func(r *http.Request, query string) string{
		"absolute":     func(r *http.Request, q string) string { return "http://" + r.Host + r.URL.Path + q },
		"relative":     func(r *http.Request, q string) string { return r.URL.Path + q },
		"query alone":  func(_ *http.Request, q string) string { return q },
		"another host": func(r *http.Request, q string) string { return "https://internal.example" + r.URL.Path + q },
		"another path": func(r *http.Request, q string) string { return "/artifactory/api/docker/x" + r.URL.Path + q },
	} {
		t.Run(name, func(t *testing.T) {
			var paths []string
			f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				paths = append(paths, r.URL.Path)
				field := map[string]string{"/v2/acme/x/tags/list": "tags", "/v2/_catalog": "repositories"}[r.URL.Path]
				if field == "" {
					fmt.Fprint(w, `{"name":"","tags":[],"repositories":[]}`)
					return
				}
				rest := all[slices.Index(all, r.URL.Query().Get("last"))+1:]
				page := rest[:min(2, len(rest))]
				if len(rest) > 2 {
					w.Header().Set("Link", "<"+link(r, "?n=2&last="+page[1])+`>; rel="next"`)
				}
				json.NewEncoder(w).Encode(map[string][]string{field: page})
			}))
			defer f.Close()
			host := ociaddr.Registry(f.Listener.Addr().String())
			c := New(Options{})
			var tags, repos []string
			err := mustOpen(t, c, ociaddr.Repository{Registry: host, Name: "acme/x"}).Tags(t.Context(), "", func(page []string) error {
				tags = append(tags, page...)
				return nil
			})
			if err != nil || !slices.Equal(tags, all) {
				t.Errorf("tags %v, %v; asked for %v", tags, err, paths)
			}
			registry, err := c.Registry(t.Context(), host)
			if err != nil {
				t.Fatal(err)
			}
			err = registry.Repositories(t.Context(), "", func(page []string) error {
				repos = append(repos, page...)
				return nil
			})
			if err != nil || !slices.Equal(repos, all) {
				t.Errorf("repositories %v, %v; asked for %v", repos, err, paths)
			}
		})
	}
}

// TestLinkToAnotherHostIsNotFollowed shows that a list fails if the link to its next page
// leads to another host and has no query. It also shows that no request goes to that
// host.
func TestLinkToAnotherHostIsNotFollowed(t *testing.T) {
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		fmt.Fprint(w, `{"tags":["9.9.9"],"repositories":["x"]}`)
	}))
	defer other.Close()
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "<"+other.URL+r.URL.Path+`>; rel="next"`)
		fmt.Fprint(w, `{"tags":["1.0.0"],"repositories":["a"]}`)
	}))
	defer f.Close()
	host := ociaddr.Registry(f.Listener.Addr().String())
	c := New(Options{})
	if err := listTags(t, c, ociaddr.Repository{Registry: host, Name: "acme/x"}); err == nil {
		t.Error("an incomplete list of tags is not an error")
	}
	registry, err := c.Registry(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	if err := registry.Repositories(t.Context(), "", func([]string) error { return nil }); err == nil {
		t.Error("an incomplete list of repositories is not an error")
	}
	if asked != 0 {
		t.Errorf("the other host was asked %d times", asked)
	}
}
