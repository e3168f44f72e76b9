package registry_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
)

const indexType = "application/vnd.oci.image.index.v1+json"

// api sends requests for one repository to a registry's API.
type api struct {
	t    *testing.T
	reg  *registry.Registry
	name string
}

// ask sends a request for a path below the repository. It returns the status and the body of the response as one
// text.
func (a api) ask(method, path, body string) string {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.reg.URL+"/v2/"+a.name+"/"+path, strings.NewReader(body))
	clients.Must(a.t, err)
	req.Header.Set("Accept", indexType)
	if body != "" {
		req.Header.Set("Content-Type", indexType)
	}
	resp, err := http.DefaultClient.Do(req)
	clients.Must(a.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	clients.Must(a.t, err)
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, data))
}

func (a api) delete(reference string) string {
	a.t.Helper()
	return a.ask(http.MethodDelete, "manifests/"+reference, "")
}

// index returns an index that contains a text and refers to the given children. The children are such indexes
// too.
func index(says string, children ...digest.Digest) string {
	manifests := make([]map[string]any, len(children))
	for i, d := range children {
		manifests[i] = map[string]any{"mediaType": indexType, "digest": d, "size": len(index("12345"))}
	}
	data, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": indexType, "manifests": manifests, "annotations": map[string]string{"says": says},
	})
	if err != nil {
		panic(err) // cannot happen: only strings and numbers
	}
	return string(data)
}

// push pushes an index under its digest and under the given tags. It returns the digest.
func (a api) push(manifest string, tags ...string) digest.Digest {
	a.t.Helper()
	d := digest.FromString(manifest)
	for _, reference := range append(tags, d.String()) {
		if answer := a.ask(http.MethodPut, "manifests/"+reference, manifest); answer != "201" {
			a.t.Fatalf("push %s: %s", reference, answer)
		}
	}
	return d
}

// TestDeletes shows what a deletion does in both registry programs. They differ only for tags: distribution 2.8
// cannot delete a tag without its manifest.
func TestDeletes(t *testing.T) {
	const (
		unknown     = `404 {"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`
		invalid     = `400 {"errors":[{"code":"DIGEST_INVALID","message":"provided digest did not match uploaded content"}]}`
		pathUnknown = `404 {"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown","detail":"filesystem: Path not found: /docker/registry/v2/repositories/acme/%s/_manifests/tags/9.0.0"}]}`
	)
	leaf := digest.FromString(index("child"))
	top, other := index("index", leaf), index("other", leaf)
	type result struct {
		answer    string
		tags      []string
		manifests []digest.Digest // all manifests that remain, sorted
	}
	for name, tc := range map[string]struct {
		do func(a api) (answer string) // after pushing leaf, and top with the tags 1 and 2
		v3 result
		// v28 is the result of distribution 2.8. It is nil if the result is the same as v3.
		v28 *result
	}{
		"tag": {
			do:  func(a api) string { return a.delete("1") },
			v3:  result{"202", []string{"2"}, all(leaf, top)},
			v28: &result{invalid, []string{"1", "2"}, all(leaf, top)},
		},
		"absent tag": {
			do:  func(a api) string { return a.delete("9.0.0") },
			v3:  result{fmt.Sprintf(pathUnknown, "absent-tag"), []string{"1", "2"}, all(leaf, top)},
			v28: &result{invalid, []string{"1", "2"}, all(leaf, top)},
		},
		"manifest with tags": {
			do: func(a api) string { return a.delete(digest.FromString(top).String()) },
			v3: result{"202", nil, all(leaf)},
		},
		"manifest that is gone": {
			do: func(a api) string {
				a.delete(digest.FromString(top).String())
				return a.delete(digest.FromString(top).String())
			},
			v3: result{unknown, nil, all(leaf)},
		},
		"child of an index": {
			do: func(a api) string { return a.delete(leaf.String()) },
			v3: result{"202", []string{"1", "2"}, all("", top)},
		},
		"index whose child is gone": {
			do: func(a api) string {
				a.delete(leaf.String())
				return a.ask(http.MethodHead, "manifests/1", "")
			},
			v3: result{"200", []string{"1", "2"}, all("", top)},
		},
		"index pushed again whose child is gone": {
			do: func(a api) string {
				a.delete(leaf.String())
				return a.ask(http.MethodPut, "manifests/3", top)
			},
			v3: result{`400 {"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry","detail":"` + leaf.String() + `"}]}`, []string{"1", "2"}, all("", top)},
		},
		"child pushed again": {
			do: func(a api) string {
				a.delete(leaf.String())
				a.push(index("child"))
				return a.ask(http.MethodPut, "manifests/3", top)
			},
			v3: result{"201", []string{"1", "2", "3"}, all(leaf, top)},
		},
		"tag that moves": {
			do: func(a api) string {
				a.push(other, "1", "2")
				return a.ask(http.MethodHead, "manifests/"+digest.FromString(top).String(), "")
			},
			v3: result{"200", []string{"1", "2"}, all(leaf, top, other)},
		},
		"manifest that a tag left": {
			do: func(a api) string {
				a.push(other, "2")
				return a.delete(digest.FromString(top).String())
			},
			v3: result{"202", []string{"2"}, all(leaf, other)},
		},
	} {
		for _, program := range registry.Programs {
			t.Run(name+"/"+string(program), func(t *testing.T) {
				t.Parallel()
				a := api{t, registry.For(t, registry.Options{Program: program}), "acme/" + strings.ReplaceAll(name, " ", "-")}
				a.push(index("child"))
				a.push(top, "1", "2")
				want := tc.v3
				if program == registry.Distribution28 && tc.v28 != nil {
					want = *tc.v28
				}
				if got := tc.do(a); got != want.answer {
					t.Errorf("response %s, want %s", got, want.answer)
				}
				c, err := a.reg.Contents(a.name)
				clients.Must(t, err)
				if tags := c.TagNames(); !slices.Equal(tags, want.tags) {
					t.Errorf("tags %q, want %q", tags, want.tags)
				}
				if left := slices.Sorted(maps.Keys(c.Manifests)); !slices.Equal(left, want.manifests) {
					t.Errorf("manifests %q, want %q", left, want.manifests)
				}
			})
		}
	}
}

// all returns d and the digests of the indexes, sorted. It omits d if d is "".
func all(d digest.Digest, indexes ...string) []digest.Digest {
	var out []digest.Digest
	if d != "" {
		out = append(out, d)
	}
	for _, text := range indexes {
		out = append(out, digest.FromString(text))
	}
	slices.Sort(out)
	return out
}

// TestNoTagsLeft shows how both registry programs list the tags of a repository whose tags were all deleted.
// Distribution 2.8 returns null instead of an empty list.
func TestNoTagsLeft(t *testing.T) {
	for program, want := range map[registry.Program]string{
		registry.Distribution3:  `200 {"name":"acme/x","tags":[]}`,
		registry.Distribution28: `200 {"name":"acme/x","tags":null}`,
	} {
		a := api{t, registry.For(t, registry.Options{Program: program}), "acme/x"}
		if got := a.ask(http.MethodGet, "tags/list", ""); !strings.HasPrefix(got, `404 {"errors":[{"code":"NAME_UNKNOWN"`) {
			t.Errorf("%s: before: %s", program, got)
		}
		a.delete(a.push(index("child"), "1").String())
		if got := a.ask(http.MethodGet, "tags/list", ""); got != want {
			t.Errorf("%s: %s, want %s", program, got, want)
		}
	}
}

// TestContents shows which manifests contents.Unreachable returns after pushes, after a tag was moved, and after
// deletions.
func TestContents(t *testing.T) {
	for _, program := range registry.Programs {
		a := api{t, registry.For(t, registry.Options{Program: program}), "acme/x"}
		check := func(what string, tags string, unreachable ...digest.Digest) {
			t.Helper()
			c, err := a.reg.Contents(a.name)
			clients.Must(t, err)
			slices.Sort(unreachable)
			if got := strings.Join(c.TagNames(), " "); got != tags || !slices.Equal(c.Unreachable(), unreachable) {
				t.Errorf("%s, %s: tags %s, unreachable %s; want %s, %s", program, what, got, c.Unreachable(), tags, unreachable)
			}
		}
		check("absent", "")
		linux, darwin := a.push(index("linux")), a.push(index("macos"))
		check("children alone", "", linux, darwin)
		first := a.push(index("first", linux, darwin), "1")
		check("tagged", "1")
		second := a.push(index("again", linux), "1")
		check("replaced", "1", first, darwin)
		a.delete(second.String())
		check("deleted", "", first, linux, darwin)
		for _, d := range []digest.Digest{first, linux, darwin} {
			a.delete(d.String())
		}
		check("all deleted", "")
	}
}
