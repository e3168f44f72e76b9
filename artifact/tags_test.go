package artifact_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// pages serves a list of five tags, with two tags on each page. link returns the URL that a
// page gives for the next page, which begins after the tag last.
func pages(link func(r *http.Request, last string) string) http.HandlerFunc {
	all := []string{"1.0.0", "1.10.0", "1.2.0", "latest", "not a tag"}
	return func(w http.ResponseWriter, r *http.Request) {
		rest := all
		if i := slices.Index(all, r.URL.Query().Get("last")); i >= 0 {
			rest = all[i+1:]
		}
		page := rest[:min(2, len(rest))]
		if len(rest) > 2 {
			w.Header().Set("Link", "<"+link(r, page[1])+`>; rel="next"`)
		}
		json.NewEncoder(w).Encode(map[string]any{"name": "acme/widget", "tags": page})
	}
}

func TestListTags(t *testing.T) {
	for name, link := range map[string]func(r *http.Request, last string) string{
		"absolute links": func(r *http.Request, last string) string { return "http://" + r.Host + r.URL.Path + "?last=" + last },
		"relative links": func(r *http.Request, last string) string { return r.URL.Path + "?last=" + last },
		"another host": func(r *http.Request, last string) string {
			return "https://internal.example" + r.URL.Path + "?last=" + last
		},
		"no URL": func(r *http.Request, last string) string { return "http://[" + last },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.lies["/acme/widget/tags/list"] = pages(link)
			got, err := artifact.ListTags(t.Context(), b.repo)
			if want := []ociaddr.Tag{"1.0.0", "1.10.0", "1.2.0", "latest"}; err != nil || !slices.Equal(got, want) {
				t.Errorf("%v, %v; want %v", got, err, want)
			}
			if n := b.registry.Count(); n != 3 {
				t.Errorf("%d requests: %+v", n, b.registry.Requests())
			}
		})
	}
}

// TestListOfTagsThatBreaksOff shows that ListTags returns an error if a later page fails.
// It returns neither a shorter list nor the error of an absent repository.
func TestListOfTagsThatBreaksOff(t *testing.T) {
	wrong := func(*http.Request, string) string { return "https://internal.example/" }
	status := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, `{"errors":[{"code":"NAME_UNKNOWN"}]}`)
		}
	}
	for name, tc := range map[string]struct {
		more     http.HandlerFunc // serves every page after the first
		requests int
	}{
		"nothing after the last tag either": {status(404), 2},
		"a registry that begins again":      {func(w http.ResponseWriter, r *http.Request) { r.URL.RawQuery = ""; pages(wrong)(w, r) }, 2},
		"too many requests":                 {status(429), 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.lies["/tags/list"] = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Has("last") {
					tc.more(w, r)
					return
				}
				pages(wrong)(w, r)
			}
			got, err := artifact.ListTags(t.Context(), b.repo)
			if got != nil || !errors.Is(err, artifact.ErrTagsBrokeOff) {
				t.Errorf("%v, %v", got, err)
			}
			if n := b.registry.Count(); n != tc.requests {
				t.Errorf("%d requests: %+v", n, b.registry.Requests())
			}
		})
	}
	t.Run("a link is right, and its page is refused for now", func(t *testing.T) {
		b := newBench(t)
		b.lies["/tags/list"] = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("last") {
				status(503)(w, r)
				return
			}
			pages(func(r *http.Request, last string) string { return r.URL.Path + "?last=" + last })(w, r)
		}
		_, err := artifact.ListTags(t.Context(), b.repo)
		var answer *errcode.ErrorResponse
		if !errors.As(err, &answer) || answer.StatusCode != 503 || b.registry.Count() != 2 {
			t.Errorf("%v after %d requests", err, b.registry.Count())
		}
	})
}

func TestListOfTagsHasAnEnd(t *testing.T) {
	b := newBench(t)
	n := 0
	b.lies["/tags/list"] = func(w http.ResponseWriter, r *http.Request) {
		n++
		if n < 2*artifact.MaxTagPages {
			w.Header().Set("Link", `<https://internal.example/>; rel="next"`)
		}
		fmt.Fprintf(w, `{"tags":["1.0.%d"]}`, n)
	}
	if _, err := artifact.ListTags(t.Context(), b.repo); !errors.Is(err, errdef.ErrTooManyPages) || n != artifact.MaxTagPages+1 {
		t.Errorf("%v after %d pages", err, n)
	}
}

func TestListOfTagsIsNotReadWithoutEnd(t *testing.T) {
	b := newBench(t)
	n := 0
	b.lies["/tags/list"] = func(w http.ResponseWriter, r *http.Request) {
		n++
		tags := make([]string, artifact.MaxTags/2)
		for i := range tags {
			tags[i] = fmt.Sprintf("%d-%d", n, i)
		}
		w.Header().Set("Link", fmt.Sprintf("<%s?last=%d>; rel=\"next\"", r.URL.Path, n))
		json.NewEncoder(w).Encode(map[string]any{"tags": tags})
	}
	tags, err := artifact.ListTags(t.Context(), b.repo)
	if tags != nil || !errors.Is(err, artifact.ErrTagsBrokeOff) || n != 3 {
		t.Errorf("%d tags, %v after %d pages", len(tags), err, n)
	}
}

// TestPageOfTagsWithoutEnd shows that ListTags stops reading a page of tags that never
// ends, and returns an error.
func TestPageOfTagsWithoutEnd(t *testing.T) {
	b := newBench(t)
	sent := 0
	ended := make(chan struct{})
	b.lies["/tags/list"] = func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		io.WriteString(w, `{"tags":["1.0.0"`)
		for more := []byte(strings.Repeat(`,"1.0.0"`, 10_000)); ; sent += len(more) {
			if _, err := w.Write(more); err != nil {
				return
			}
		}
	}
	tags, err := artifact.ListTags(t.Context(), b.repo)
	if tags != nil || err == nil {
		t.Errorf("%d tags, %v", len(tags), err)
	}
	<-ended
	if sent > 64<<20 {
		t.Errorf("%d bytes were read", sent)
	}
}

func TestTagsOfAbsentRepository(t *testing.T) {
	b := newBench(t)
	_, err := artifact.ListTags(t.Context(), b.repo)
	var answer *errcode.ErrorResponse
	if !errors.As(err, &answer) || answer.StatusCode != 404 || errors.Is(err, artifact.ErrTagsBrokeOff) {
		t.Errorf("%v", err)
	}
}

// TestTagsOfNoRepository shows that a repository counts as absent only if the first page of
// its list of tags is not found.
func TestTagsOfNoRepository(t *testing.T) {
	notFound := &errcode.ErrorResponse{StatusCode: http.StatusNotFound}
	for name, tc := range map[string]struct {
		pages  []string // the pages that are listed before err
		err    error
		absent bool
	}{
		"the error of oras-go": {nil, errdef.ErrNotFound, true},
		"a status":             {nil, notFound, true},
		"a refusal":            {nil, &errcode.ErrorResponse{StatusCode: http.StatusForbidden}, false},
		"a later page":         {[]string{"1.0.0"}, notFound, false},
	} {
		list := listerFunc(func(last string, fn func([]string) error) error {
			if last == "" && tc.pages != nil {
				if err := fn(tc.pages); err != nil {
					return err
				}
			}
			return tc.err
		})
		tags, err := artifact.ListAnyTags(t.Context(), list)
		if len(tags) > 0 || tc.absent != (err == nil) || !tc.absent && !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, %v", name, tags, err)
		}
	}
}

type listerFunc func(last string, fn func([]string) error) error

// Tags implements [artifact.TagLister].
func (f listerFunc) Tags(_ context.Context, last string, fn func([]string) error) error {
	return f(last, fn)
}
