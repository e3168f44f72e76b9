package artifact

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/trust"
)

// hostileIndex returns an index with one package. It adds the given JSON members to the
// index and to the package's entry, and appends the entries in more.
func hostileIndex(t *testing.T, index, entry map[string]any, more ...any) []byte {
	t.Helper()
	manifest := digest.FromString("manifest")
	merge := func(to, from map[string]any) map[string]any {
		for key, value := range from {
			to[key] = value
		}
		return to
	}
	data, err := json.Marshal(merge(map[string]any{
		"mediaType": ocispec.MediaTypeImageIndex, "artifactType": TypeProvider,
		"manifests": append([]any{merge(map[string]any{
			"mediaType": ocispec.MediaTypeImageManifest, "artifactType": TypeTarget, "digest": manifest, "size": 1,
			"platform": map[string]any{"os": "linux", "architecture": "amd64"},
		}, entry)}, more...),
	}, index))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTextsOfManifests puts a text or number of almost 4 MiB into each field of an index, a
// manifest or a record. It shows that three things stay small: the cost of decoding, the
// text of the error, and the memory that the result retains.
func TestTextsOfManifests(t *testing.T) {
	testkit.LeaveToAll(t)
	const size = MaxManifestBytes - 2000
	// A control character takes 4 bytes in an error. An invalid UTF-8 byte would take 3 bytes
	// in the decoded text, but Unmarshal refuses a document with invalid UTF-8.
	for kind, text := range map[string]string{"control characters": strings.Repeat("\x7f", size), "no UTF-8": strings.Repeat("\xff", size)} {
		annotate := func(key string) map[string]any {
			return map[string]any{"annotations": map[string]string{key: text}}
		}
		index := func(index, entry map[string]any, more ...any) []byte {
			data := hostileIndex(t, index, entry, more...)
			// encoding/json has replaced the invalid UTF-8 bytes. Put them back, as an attacker
			// would send them.
			return []byte(strings.ReplaceAll(string(data), `\ufffd`, "\xff"))
		}
		evidence := map[string]any{"mediaType": text, "artifactType": TypeEvidence, "digest": digest.FromString("evidence"), "size": 1}
		for place, tc := range map[string]struct {
			document []byte
			decode   func([]byte) (any, error)
			accepted bool
		}{
			"index: media type":            {index(map[string]any{"mediaType": text}, nil), readIndex, false},
			"index: artifact type":         {index(map[string]any{"artifactType": text}, nil), readIndex, false},
			"index: provider":              {index(annotate(annotationProvider), nil), readIndex, false},
			"index: version":               {index(annotate(annotationVersion), nil), readIndex, false},
			"index: protocols":             {index(annotate(annotationProtocols), nil), readIndex, true},
			"index: other annotation":      {index(annotate(ocispec.AnnotationTitle), nil), readIndex, true},
			"entry: media type":            {index(nil, map[string]any{"mediaType": text}), readIndex, false},
			"entry: digest":                {index(nil, map[string]any{"digest": text}), readIndex, false},
			"entry: operating system":      {index(nil, map[string]any{"platform": map[string]string{"os": text}}), lintIndex, false},
			"entry: version of the system": {index(nil, map[string]any{"platform": map[string]string{"os.version": text}}), lintIndex, false},
			"entry: layer's digest":        {index(nil, annotate(annotationDigest)), readIndex, true},
			"entry: h1": {index(nil, map[string]any{"annotations": map[string]string{
				annotationDigest: digest.FromString("x").String(), annotationSize: "1", annotationFilename: "x.zip", annotationH1: text,
			}}), readIndex, true},
			"entry: file name":         {index(nil, annotate(annotationFilename)), readIndex, true},
			"evidence: media type":     {index(nil, nil, evidence), readIndex, false},
			"manifest: media type":     {index(map[string]any{"mediaType": text}, nil), readManifest, false},
			"manifest: artifact type":  {index(map[string]any{"artifactType": text}, nil), readManifest, false},
			"manifest: layer's digest": {index(map[string]any{"mediaType": ocispec.MediaTypeImageManifest, "artifactType": TypeTarget, "layers": []any{map[string]any{"mediaType": mediaTypeZip, "digest": text, "size": 1}}}, nil), readManifest, false},
			"record: verdict":          {index(map[string]any{"verdict": text}, nil), readRecordOf, false},
		} {
			t.Run(place+", "+kind, func(t *testing.T) {
				checkCost(t, tc.document, tc.decode, tc.accepted && utf8.Valid(tc.document))
			})
		}
	}
	number := strings.Repeat("9", size)
	t.Run("index: number", func(t *testing.T) {
		checkCost(t, []byte(`{"schemaVersion":`+number+`}`), readIndex, false)
	})
	t.Run("index: provider, slashes", func(t *testing.T) {
		address := map[string]any{"annotations": map[string]string{annotationProvider: "a" + strings.Repeat("/", size)}}
		checkCost(t, hostileIndex(t, address, nil), readIndex, false)
	})
	t.Run("index: protocols, many", func(t *testing.T) {
		protocols := map[string]any{"annotations": map[string]string{annotationProtocols: strings.Repeat("5,", size/2)}}
		checkCost(t, hostileIndex(t, protocols, nil), readIndex, true)
	})
}

// checkCost decodes a document. It fails the test if decoding allocates too much memory, or
// if the result retains too much.
func checkCost(t *testing.T, document []byte, decode func([]byte) (any, error), accepted bool) {
	t.Helper()
	if len(document) > MaxManifestBytes {
		t.Fatalf("the document has %d bytes", len(document))
	}
	cost.Check(t, len(document), !accepted, func() error { _, err := decode(document); return brief(t, err) })
	cost.Kept(t, 64<<10, func() any { v, err := decode(document); return []any{v, err} })
}

// brief fails the test if the text of err is longer than 2 KiB. It returns an error with
// only the beginning of the text.
func brief(t *testing.T, err error) error {
	t.Helper()
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) > 2<<10 {
		t.Errorf("the error has %d bytes", len(text))
	}
	return fmt.Errorf("%.100s", text)
}

func readIndex(data []byte) (any, error) {
	return decodeIndex(ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}, data)
}

// lintIndex returns the version and all flaws of an index, including the flaws of entries
// that clients ignore.
func lintIndex(data []byte) (any, error) {
	v, flaws := examineIndex(ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}, data)
	var all []error
	for _, f := range flaws {
		all = append(all, f.err)
	}
	return v, errors.Join(all...)
}

func readManifest(data []byte) (any, error) {
	m, err := decodeManifest(data, TypeTarget, ErrNotProvider)
	if err != nil {
		return nil, err
	}
	return zipLayer(m, ErrNotProvider)
}

func readRecordOf(data []byte) (any, error) { return decodeRecord(data) }

// TestProtocolsAreBounded shows that a version whose protocols exceed the limits is read,
// and that its protocols count as unknown.
func TestProtocolsAreBounded(t *testing.T) {
	of := func(n int) string { return strings.TrimSuffix(strings.Repeat("5.0,", n), ",") }
	for name, tc := range map[string]struct {
		annotation string
		want       int
	}{
		"two":                       {"5.0,6.0", 2},
		"as many as there may be":   {of(maxProtocols), maxProtocols},
		"more than there may be":    {of(maxProtocols + 1), 0},
		"as long as they may be":    {strings.Repeat("5", maxProtocolBytes), 1},
		"longer than they may be":   {strings.Repeat("5", maxProtocolBytes+1), 0},
		"nothing but commas":        {strings.Repeat(",", maxProtocolBytes), 0},
		"empty ones between others": {"5.0,,6.0,", 2},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := decodeIndex(ocispec.Descriptor{}, hostileIndex(t, map[string]any{"annotations": map[string]string{annotationProtocols: tc.annotation}}, nil))
			if err != nil || len(v.Packages) != 1 || len(v.Protocols) != tc.want {
				t.Errorf("%d protocols, %v", len(v.Protocols), err)
			}
			record, err := json.Marshal(Record{Verdict: trust.Signed, Protocols: strings.Split(tc.annotation, ",")})
			if err != nil {
				t.Fatal(err)
			}
			r, err := decodeRecord(record)
			if len(r.Protocols) > maxProtocols || len(strings.Join(r.Protocols, ",")) > maxProtocolBytes || err != nil {
				t.Errorf("the record has %d protocols, %v", len(r.Protocols), err)
			}
		})
	}
	v := Version{Protocols: strings.Split(of(maxProtocols+1), ","), Packages: []Package{{}}}
	if _, err := EncodeIndex(v); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an index with %d protocols: %v", len(v.Protocols), err)
	}
}

// TestMediaTypeTooLong shows that a descriptor is refused if its media type is too long.
func TestMediaTypeTooLong(t *testing.T) {
	for n, refused := range map[int]bool{maxMediaType: false, maxMediaType + 1: true} {
		desc := ocispec.Descriptor{MediaType: strings.Repeat("x", n), Digest: digest.FromString("x"), Size: 1}
		if err := checkDescriptor(desc, MaxManifestBytes); errors.Is(err, ErrNotProvider) != refused {
			t.Errorf("a media type of %d bytes: %v", n, err)
		}
	}
}

// TestRecordTooLarge shows that a record of more than 64 KiB is neither written nor read.
func TestRecordTooLarge(t *testing.T) {
	e := Evidence{Record: Record{Verdict: trust.Signed, Origin: strings.Repeat("x", maxRecordBytes)}}
	if _, _, err := EncodeEvidence(e); !errors.Is(err, ErrTooLarge) {
		t.Errorf("encoded: %v", err)
	}
}

// TestNamesInAListOfTags shows that a list of tags does not keep invalid names of 1 MiB in
// memory.
func TestNamesInAListOfTags(t *testing.T) {
	cost.Kept(t, 4<<20, func() any {
		l := &tagList{seen: map[string]bool{}}
		for i := range 50 {
			if err := l.page([]string{"1.0.0", fmt.Sprint(i, strings.Repeat("\x7f", 1<<20))}); err != nil {
				t.Fatal(err)
			}
		}
		if len(l.tags) != 50 || !strings.HasPrefix(l.last, "49") {
			t.Errorf("%d tags, the last name is %.10q", len(l.tags), l.last)
		}
		return l
	})
}
