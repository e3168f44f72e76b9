package artifact_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

func (b *bench) lint() []artifact.Finding {
	b.t.Helper()
	l, err := artifact.Lint(b.t.Context(), b.repo, widget, v100)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range l.Findings {
		if f.Hint == "" || f.What == "" || f.Where == "" || strings.Contains(f.What+f.Hint, "\n") {
			b.t.Errorf("finding %+v", f)
		}
	}
	return l.Findings
}

// has reports whether findings contains a finding with the given severity and location
// whose message contains the text what.
func has(findings []artifact.Finding, severity artifact.Severity, where, what string) bool {
	return slices.ContainsFunc(findings, func(f artifact.Finding) bool {
		return f.Severity == severity && f.Where == where && strings.Contains(f.What, what)
	})
}

// TestLintOfOurOwn shows that Lint finds nothing in a version that ocibridge pushed, except
// that packages without an h1: hash cause a warning.
func TestLintOfOurOwn(t *testing.T) {
	b := newBench(t)
	e := encode(t, linux)
	b.push(e)
	l, err := artifact.Lint(t.Context(), b.repo, widget, v100)
	if err != nil || len(l.Findings) != 0 {
		t.Errorf("%+v, %v", l.Findings, err)
	}
	if len(l.Version.Packages) != 1 || !reflect.DeepEqual(l.Version.Packages, e.version.Packages) {
		t.Errorf("read %+v", l.Version)
	}
	if n := b.registry.Count(recorder.Method(http.MethodHead)); n != 1 {
		t.Errorf("%d HEAD, want one for the package: %+v", n, b.registry.Requests())
	}
	b = newBench(t)
	b.push(encode(t, linux, darwin, windows))
	if got := b.lint(); len(got) != 1 || !has(got, "warning", "1.0.0", "no h1: hash for darwin_arm64, windows_amd64") {
		t.Errorf("%+v", got)
	}
}

// TestLintOfOtherTools shows that Lint finds warnings but no errors in a version that was
// pushed with the ORAS CLI, because clients can install it.
func TestLintOfOtherTools(t *testing.T) {
	b := newBench(t)
	packages := b.pushByRecipe(func(layer ocispec.Descriptor) ocispec.Descriptor { return layer })
	l, err := artifact.Lint(t.Context(), b.repo, widget, v100)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range l.Findings {
		if f.Severity != artifact.SeverityWarning {
			t.Errorf("%+v", f)
		}
	}
	if !has(l.Findings, "warning", "evidence", "there is none") || len(l.Version.Packages) != len(packages) || l.Version.Packages[0].Digest != packages[0].Digest {
		t.Errorf("%+v\n%+v", l.Findings, l.Version)
	}
}

// TestLintOfIndexes shows the findings for invalid indexes. Each case changes a valid
// index, which has entries for darwin_arm64, for linux_amd64 and for evidence.
func TestLintOfIndexes(t *testing.T) {
	type index = ocispec.Index
	entry := func(change func(*ocispec.Descriptor)) func(*index) {
		return func(i *index) { change(&i.Manifests[0]) }
	}
	annotation := func(key, value string) func(*index) {
		return entry(func(d *ocispec.Descriptor) { d.Annotations[key] = value })
	}
	for name, tc := range map[string]struct {
		spoil       func(*index)
		severity    artifact.Severity
		where, what string
	}{
		"no media type":       {func(i *index) { i.MediaType = "" }, "error", "1.0.0", `media type is ""`},
		"wrong artifact type": {func(i *index) { i.ArtifactType = "application/vnd.acme" }, "error", "1.0.0", "artifact type is"},
		"empty":               {func(i *index) { i.Manifests = nil }, "error", "1.0.0", "holds no package"},
		"another provider's":  {func(i *index) { i.Annotations[artifact.AnnotationProvider] = "registry.acme.example/ac/me-widget" }, "error", "1.0.0", "belongs to another provider"},
		"another version":     {func(i *index) { i.Annotations[artifact.AnnotationVersion] = "1.0.1" }, "error", "1.0.0", "version 1.0.1"},
		"two for a platform":  {entry(func(d *ocispec.Descriptor) { d.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"} }), "error", "linux_amd64", "two packages"},
		"no platform":         {entry(func(d *ocispec.Descriptor) { d.Platform = nil }), "error", "entry 1", "no platform"},
		"os.version":          {entry(func(d *ocispec.Descriptor) { d.Platform.OSVersion = "14" }), "error", "darwin_arm64", "os.version"},
		"os.version, for a platform": {entry(func(d *ocispec.Descriptor) {
			d.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64", OSVersion: "6"}
		}), "warning", "linux_amd64", "os.version"},
		"a platform of another tongue":  {entry(func(d *ocispec.Descriptor) { d.Platform.Architecture = "x86_64" }), "error", "entry 1", "no client runs on"},
		"entry of another media type":   {entry(func(d *ocispec.Descriptor) { d.MediaType = "" }), "error", "darwin_arm64", "media type"},
		"entry too large":               {entry(func(d *ocispec.Descriptor) { d.Size = artifact.MaxManifestBytes + 1 }), "error", "darwin_arm64", "manifest too large"},
		"manifest that is not there":    {entry(func(d *ocispec.Descriptor) { d.Digest = digest.FromString("gone") }), "error", "darwin_arm64", "the registry lacks content that it refers to"},
		"evidence that is not there":    {func(i *index) { i.Manifests[2].Digest = digest.FromString("gone") }, "error", "evidence", "the registry lacks content that it refers to"},
		"evidence twice":                {func(i *index) { i.Manifests = append(i.Manifests, i.Manifests[2]) }, "error", "evidence", "two entries"},
		"no evidence":                   {func(i *index) { i.Manifests = i.Manifests[:2] }, "warning", "evidence", "none"},
		"another digest than its layer": {annotation(artifact.AnnotationDigest, digest.FromString("x").String()), "error", "darwin_arm64", "the index gives the digest"},
		"another size than its layer":   {annotation(artifact.AnnotationSize, "5"), "error", "darwin_arm64", "the index gives the size 5"},
		"another hash than its layer": {func(i *index) {
			i.Manifests[1].Annotations[artifact.AnnotationH1] = "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
		}, "error", "linux_amd64", "the index gives the hash h1:AAA"},
		"another name than published": {annotation(artifact.AnnotationFilename, "widget.zip"), "warning", "darwin_arm64", "its file name is widget.zip, and not terraform-provider-widget_1.0.0_darwin_arm64.zip"},
		"another platform's name":     {annotation(artifact.AnnotationFilename, "terraform-provider-widget_1.0.0_linux_amd64.zip"), "error", "darwin_arm64", "of another version or platform"},
		"another verdict than its record": {func(i *index) {
			i.Manifests[2].Annotations = map[string]string{artifact.AnnotationVerdict: "checksum only"}
		}, "error", "evidence", `the index gives the verdict "checksum only", and its record "signed"`},
		"another name than its layer":   {annotation(artifact.AnnotationFilename, "widget.zip"), "warning", "darwin_arm64", "the index gives the file name"},
		"annotations that are not used": {annotation(artifact.AnnotationSize, "many"), "warning", "darwin_arm64", "are not used"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, darwin, linux)
			b.push(e)
			i := unmarshal[index](t, e.index.Data)
			tc.spoil(&i)
			b.answerIndex(i)
			got := b.lint()
			if !has(got, tc.severity, tc.where, tc.what) {
				t.Errorf("%+v", got)
			}
			// Lint reports every error of Read as a finding.
			if _, err := b.read(); err != nil && !slices.ContainsFunc(got, func(f artifact.Finding) bool { return f.Severity == "error" && f.What == err.Error() }) {
				t.Errorf("read: %v, found %+v", err, got)
			}
		})
	}
	t.Run("everything at once", func(t *testing.T) {
		b := newBench(t)
		e := encode(t, darwin, linux)
		b.push(e)
		i := unmarshal[index](t, e.index.Data)
		i.MediaType, i.ArtifactType = "", ""
		i.Manifests[0].Platform = nil
		i.Manifests[1].Digest = digest.FromString("gone")
		b.answerIndex(i)
		got := b.lint()
		for _, what := range []string{"media type", "artifact type", "no platform", "lacks"} {
			if !slices.ContainsFunc(got, func(f artifact.Finding) bool { return strings.Contains(f.What, what) }) {
				t.Errorf("no %s in %+v", what, got)
			}
		}
	})
}

// TestLintOfManifests shows the findings for invalid platform manifests. The index that
// refers to them has no annotations.
func TestLintOfManifests(t *testing.T) {
	type manifest = ocispec.Manifest
	layer := func(change func(*ocispec.Descriptor)) func(*manifest) {
		return func(m *manifest) { change(&m.Layers[0]) }
	}
	for name, tc := range map[string]struct {
		spoil func(*manifest)
		what  string
	}{
		"no media type":         {func(m *manifest) { m.MediaType = "" }, "media type"},
		"wrong artifact type":   {func(m *manifest) { m.ArtifactType = "" }, "artifact type"},
		"no layer":              {func(m *manifest) { m.Layers = nil }, "no archive/zip layer"},
		"layer of another type": {layer(func(d *ocispec.Descriptor) { d.MediaType = "application/zip" }), "no archive/zip layer"},
		"two zips":              {func(m *manifest) { m.Layers = append(m.Layers, m.Layers[0]) }, "2 archive/zip layers"},
		"zip by SHA-512":        {layer(func(d *ocispec.Descriptor) { d.Digest = digest.SHA512.FromString("x") }), "has no SHA-256"},
		"zip that is not there": {layer(func(d *ocispec.Descriptor) { d.Digest = digest.FromString("gone") }), "the registry lacks content that it refers to: the package sha256:"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, linux)
			b.push(e)
			m := unmarshal[manifest](t, e.manifests[linux].Data)
			tc.spoil(&m)
			index := unmarshal[ocispec.Index](t, e.index.Data)
			desc := b.answerManifest(m)
			index.Manifests[0].Digest, index.Manifests[0].Size, index.Manifests[0].Annotations = desc.Digest, desc.Size, nil
			b.answerIndex(index)
			if got := b.lint(); !has(got, "error", "linux_amd64", tc.what) {
				t.Errorf("%+v", got)
			}
		})
	}
	t.Run("by SHA-512", func(t *testing.T) {
		b := newBench(t)
		e := encode(t, linux)
		b.push(e)
		index := unmarshal[ocispec.Index](t, e.index.Data)
		d := digest.SHA512.FromBytes(e.manifests[linux].Data)
		b.lies["/manifests/"+d.String()] = unannounced(ocispec.MediaTypeImageManifest, e.manifests[linux].Data)
		index.Manifests[0].Digest = d
		b.answerIndex(index)
		if got := b.lint(); !has(got, "warning", "linux_amd64", "sha512:") || has(got, "error", "linux_amd64", "") {
			t.Errorf("%+v", got)
		}
	})
}

// TestLintOfSizes shows that Lint finds a descriptor whose size differs from the size in
// the registry. Lint downloads a package only if the registry announces no size.
func TestLintOfSizes(t *testing.T) {
	noLength := func(h http.Header) { h.Del("Content-Length") }
	for name, tc := range map[string]struct {
		stated    int64 // the stated size of the package, minus the true size
		annotated bool
		manifest  int64 // the size of the manifest in the index entry, minus the true size
		evidence  int64
		head, get func(http.Header) // change the headers of responses about the package
		where     string
		what      string // the finding; "" for no error
		downloads int    // GET requests for the package
	}{
		"as stated":             {},
		"layer":                 {stated: 1, where: "linux_amd64", what: "its manifest gives the package %d bytes, and the registry has %d"},
		"layer, fewer":          {stated: -1, where: "linux_amd64", what: "its manifest gives the package %d bytes, and the registry has %d"},
		"layer and annotation":  {stated: 1, annotated: true, where: "linux_amd64", what: "its manifest and its index entry give the package %d bytes, and the registry has %d"},
		"as stated, no HEAD":    {head: noLength, downloads: 1},
		"layer, no HEAD":        {stated: 1, head: noLength, downloads: 1, where: "linux_amd64", what: "its manifest gives the package %d bytes, and the registry has %d"},
		"as stated, no length":  {head: noLength, get: noLength, downloads: 2},
		"layer, no length":      {stated: 1, head: noLength, get: noLength, downloads: 2, where: "linux_amd64", what: "its manifest gives the package %d bytes, and the registry has %d"},
		"manifest in the index": {manifest: 1, where: "linux_amd64", what: "its index entry gives the manifest"},
		"evidence in the index": {evidence: -1, where: "evidence", what: "its index entry gives the manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, linux)
			b.push(e)
			m := unmarshal[ocispec.Manifest](t, e.manifests[linux].Data)
			size := m.Layers[0].Size
			m.Layers[0].Size += tc.stated
			index := unmarshal[ocispec.Index](t, e.index.Data)
			entry := &index.Manifests[0]
			desc := b.answerManifest(m)
			entry.Digest, entry.Size = desc.Digest, desc.Size+tc.manifest
			if entry.Annotations[artifact.AnnotationSize] = strconv.FormatInt(m.Layers[0].Size, 10); !tc.annotated {
				entry.Annotations = nil
			}
			index.Manifests[1].Size += tc.evidence
			b.answerIndex(index)
			if tc.head != nil {
				path := "/blobs/" + m.Layers[0].Digest.String()
				b.tamper(path, same, tc.head)
				head := b.lies[path]
				b.tamper(path, same, func(h http.Header) {
					if tc.get != nil {
						tc.get(h)
					}
				})
				get := b.lies[path]
				b.lies[path] = func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodHead {
						head(w, r)
						return
					}
					get(w, r)
				}
			}
			b.registry.Reset()
			got := b.lint()
			what := tc.what
			if strings.Contains(what, "%d") {
				what = fmt.Sprintf(what, m.Layers[0].Size, size)
			}
			errs := slices.DeleteFunc(slices.Clone(got), func(f artifact.Finding) bool { return f.Severity != artifact.SeverityError })
			if tc.what == "" && len(errs) != 0 || tc.what != "" && (len(errs) != 1 || !has(got, "error", tc.where, what)) {
				t.Errorf("%+v, want %q", got, what)
			}
			downloaded := b.registry.Count(recorder.Method(http.MethodGet), recorder.PathSuffix("/blobs/"+m.Layers[0].Digest.String()))
			if downloaded != tc.downloads {
				t.Errorf("%d downloads of the package: %+v", downloaded, b.registry.Requests())
			}
		})
	}
}

// TestLintWithoutHEAD shows that Lint checks a package with GET if the registry's response
// to HEAD is an error or announces no size.
func TestLintWithoutHEAD(t *testing.T) {
	for name, tc := range map[string]struct {
		head, get int  // the status of responses to HEAD and GET; 0 means unchanged
		noSize    bool // whether no response announces a size
		size      int64
		what      string
	}{
		"HEAD is refused":                    {head: http.StatusMethodNotAllowed},
		"HEAD is forbidden":                  {head: http.StatusForbidden},
		"a proxy cache that has it not yet":  {head: http.StatusNotFound},
		"HEAD fails":                         {head: http.StatusInternalServerError},
		"HEAD without the size":              {head: http.StatusOK},
		"HEAD is refused, no size":           {head: http.StatusMethodNotAllowed, noSize: true},
		"gone":                               {head: http.StatusNotFound, get: http.StatusNotFound, what: "the registry lacks"},
		"gone, and HEAD is refused":          {head: http.StatusMethodNotAllowed, get: http.StatusNotFound, what: "the registry lacks"},
		"the largest size there is, no size": {head: http.StatusMethodNotAllowed, noSize: true, size: math.MaxInt64, what: "and the registry has"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, linux)
			b.push(e)
			layer := unmarshal[ocispec.Manifest](t, e.manifests[linux].Data).Layers[0]
			if tc.size != 0 {
				m := unmarshal[ocispec.Manifest](t, e.manifests[linux].Data)
				m.Layers[0].Size = tc.size
				index := unmarshal[ocispec.Index](t, e.index.Data)
				desc := b.answerManifest(m)
				index.Manifests[0].Digest, index.Manifests[0].Size, index.Manifests[0].Annotations = desc.Digest, desc.Size, nil
				b.answerIndex(index)
			}
			path := "/blobs/" + layer.Digest.String()
			b.tamper(path, same, func(h http.Header) {
				if tc.noSize {
					h.Del("Content-Length")
				}
			})
			get := b.lies[path]
			b.lies[path] = func(w http.ResponseWriter, r *http.Request) {
				status := map[string]int{http.MethodHead: tc.head, http.MethodGet: tc.get}[r.Method]
				if status == 0 {
					get(w, r)
					return
				}
				w.Header().Set("Content-Length", "0")
				w.WriteHeader(status)
			}
			got := slices.DeleteFunc(b.lint(), func(f artifact.Finding) bool { return f.Severity != artifact.SeverityError })
			if tc.what == "" && len(got) != 0 || tc.what != "" && (len(got) != 1 || !has(got, "error", "linux_amd64", tc.what)) {
				t.Errorf("%+v, want %q", got, tc.what)
			}
		})
	}
}

// TestLintOfNoIndex shows the findings if a tag does not name a valid index.
func TestLintOfNoIndex(t *testing.T) {
	for name, tc := range map[string]struct {
		lie  http.HandlerFunc
		what string
	}{
		"no JSON":                  {answer(ocispec.MediaTypeImageIndex, []byte("<html>")), "not a provider index"},
		"an image":                 {answer(ocispec.MediaTypeImageManifest, []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{},"layers":[]}`)), "media type"},
		"larger than clients take": {answer(ocispec.MediaTypeImageIndex, make([]byte, artifact.MaxManifestBytes+1)), "too large"},
		"announced under another digest": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
			w.Header().Set("Docker-Content-Digest", digest.FromString("x").String())
			w.Write([]byte("{}"))
		}, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.lies["/manifests/1.0.0"] = tc.lie
			if got := b.lint(); !has(got, "error", "1.0.0", tc.what) {
				t.Errorf("%+v", got)
			}
		})
	}
	t.Run("announced as another type", func(t *testing.T) {
		b := newBench(t)
		e := encode(t, linux)
		b.push(e)
		b.lies["/manifests/1.0.0"] = answer("application/json", e.index.Data)
		if got := b.lint(); !has(got, "error", "1.0.0", `announces the index as "application/json"`) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("no tag", func(t *testing.T) {
		b := newBench(t)
		if _, err := artifact.Lint(t.Context(), b.repo, widget, v100); !errors.Is(err, errdef.ErrNotFound) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a registry in trouble has nothing wrong stored", func(t *testing.T) {
		b := newBench(t)
		e := encode(t, linux)
		b.push(e)
		b.lies[string(e.version.Packages[0].Digest)] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
		if l, err := artifact.Lint(t.Context(), b.repo, widget, v100); err == nil {
			t.Errorf("%+v", l.Findings)
		}
	})
}

// TestLintOfTags shows the finding for each form of tag, in a repository that also has
// canonical version tags.
func TestLintOfTags(t *testing.T) {
	const (
		fails    = "which does not exist: tofu init fails"
		selected = fails + " where a constraint selects it"
		own      = "which has a tag of its own"
	)
	reads := func(tag, version, then string) string {
		return fmt.Sprintf("OpenTofu reads tag %q as version %s, %s", tag, version, then)
	}
	large := func(tag string) string {
		return fmt.Sprintf("OpenTofu cannot read tag %q, and tofu init fails, or a gateway does not serve it: a number is larger than 9223372036854775807", tag)
	}
	for _, tc := range []struct {
		tag, severity, what, hint string
	}{
		{"2", "error", reads("2", "2.0.0", fails), "tag it 2.0.0 first"},
		{"1.9", "error", reads("1.9", "1.9.0", fails), "tag it 1.9.0 first"},
		{"1.2", "error", reads("1.2", "1.2.0", selected), "remove this tag"},
		{"20240101", "error", reads("20240101", "20240101.0.0", fails), "remove this tag"},
		{"02.2.3", "error", reads("02.2.3", "2.2.3", fails), "remove this tag"},
		{"2.2.3-", "error", reads("2.2.3-", "2.2.3", fails), "remove this tag"},
		{"2.2.3_", "error", reads("2.2.3_", "2.2.3", fails), "remove this tag"},
		{"2.2.3.", "error", reads("2.2.3.", "2.2.3", fails), "remove this tag"},
		{"2.2.", "error", reads("2.2.", "2.2.0", fails), "remove this tag"},
		{"2_b1", "error", reads("2_b1", "2.0.0+b1", fails), "tag it 2.0.0_b1 first"},
		{"2-rc1", "error", reads("2-rc1", "2.0.0-rc1", selected), "tag it 2.0.0-rc1 first"},
		{"9223372036854775808", "error", large("9223372036854775808"), "remove the tag"},
		{"9223372036854775808.0.0", "error", large("9223372036854775808.0.0"), "with smaller numbers"},
		{"1.3.0-9223372036854775808", "error", large("1.3.0-9223372036854775808"), "with smaller numbers"},
		{"9223372036854775807", "error", reads("9223372036854775807", "9223372036854775807.0.0", fails), "remove this tag"},
		{"01.2.3", "warning", reads("01.2.3", "1.2.3", own), "remove this tag"},
		{"1.2.3-", "warning", reads("1.2.3-", "1.2.3", own), "remove this tag"},
		{"v1.2.3", "warning", "the tag looks like a version, and no client recognises it", "remove this one"},
		{"v1.9", "warning", "the tag looks like a version, and no client recognises it", "tag it 1.9.0"},
		{"v2.0.0", "error", "the tag looks like a version, and no client recognises it", "tag it 2.0.0"},
		{"1.2.3.4", "error", "the tag looks like a version, and no client recognises it", "three numbers"},
		{"1.2.3__b", "error", "the tag looks like a version, and no client recognises it", "three numbers"},
		{"latest", "", "", ""},
		{"1a", "", "", ""},
		{"1.x", "", "", ""},
		{"_1", "", "", ""},
		{"ocibridge-part.1.2.3.linux_amd64", "", "", ""},
		{"ocibridge-seen.1.2.3", "", "", ""},
		{"ocibridge-state", "", "", ""},
		{"sha256-0123", "", "", ""},
		{"1.8.0-rc1_b", "", "", ""},
	} {
		t.Run(tc.tag, func(t *testing.T) {
			got := artifact.LintTags([]ociaddr.Tag{"1.2.3", "1.2.4_b1", "3.0.0-rc1", ociaddr.Tag(tc.tag)})
			if tc.severity == "" {
				if len(got) != 0 {
					t.Fatalf("%+v", got)
				}
				return
			}
			if len(got) != 1 || string(got[0].Severity) != tc.severity || got[0].Where != tc.tag || !strings.Contains(got[0].Hint, tc.hint) {
				t.Fatalf("%+v", got)
			}
			if got[0].What != tc.what && !(strings.HasSuffix(tc.what, ": ") && strings.HasPrefix(got[0].What, tc.what)) {
				t.Errorf("it says %q, want %q", got[0].What, tc.what)
			}
		})
	}
}

func TestRehash(t *testing.T) {
	other, err := provider.ParseHash("h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(p *artifact.Package, b *bench)
		err    error
	}{
		"as it should be": {func(*artifact.Package, *bench) {}, nil},
		"without an h1":   {func(p *artifact.Package, _ *bench) { p.H1 = provider.Hash{} }, nil},
		"another h1":      {func(p *artifact.Package, _ *bench) { p.H1 = other }, artifact.ErrDamaged},
		"no such package": {func(p *artifact.Package, _ *bench) { p.Digest = digest.FromString("gone") }, artifact.ErrNotProvider},
		"fewer bytes": {func(p *artifact.Package, b *bench) {
			b.lies["/blobs/"+p.Digest.String()] = func(w http.ResponseWriter, _ *http.Request) {
				http.NewResponseController(w).Flush() // so that the length is not announced
				w.Write(contents(t)[linux][1:])
			}
		}, artifact.ErrDamaged},
		"other bytes": {func(p *artifact.Package, b *bench) {
			data := slices.Clone(contents(t)[linux])
			data[len(data)/2] ^= 1
			b.lies["/blobs/"+p.Digest.String()] = unannounced("archive/zip", data)
		}, artifact.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, linux)
			b.push(e)
			p := e.version.Packages[0]
			tc.change(&p, b)
			given := p.H1
			content, err := artifact.Rehash(t.Context(), b.repo, "null", p)
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Errorf("%v, want %v", err, tc.err)
			}
			if h1 := content.H1s.Agreed(); err == nil && (h1.IsZero() || !given.IsZero() && h1 != given) {
				t.Errorf("h1 %q, want %q", h1, given)
			}
		})
	}
	t.Run("no zip", func(t *testing.T) {
		b := newBench(t)
		p, data := encode(t, darwin).version.Packages[0], []byte("pushed by another tool")
		p.Digest, p.Size = digest.FromBytes(data), int64(len(data))
		if err := b.repo.Push(t.Context(), p.Layer(), bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if _, err := artifact.Rehash(t.Context(), b.repo, "null", p); !errors.Is(err, artifact.ErrNotProvider) {
			t.Errorf("%v", err)
		}
	})
}

// unannounced returns a handler that serves a manifest without announcing its digest.
func unannounced(mediaType string, data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		w.Write(data)
	}
}
