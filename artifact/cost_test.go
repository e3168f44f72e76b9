package artifact

import (
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/provider"
)

var (
	cheapProvider = provider.MustParseAddress("a.example/b/c")
	cheapVersion  = provider.MustParseVersion("1.0.0")
)

// TestCostOfManifests shows that decoding the most expensive indexes, manifests and records
// costs no more than a limit.
func TestCostOfManifests(t *testing.T) {
	testkit.LeaveToAll(t)
	index := func(data []byte) error {
		_, err := decodeIndex(ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}, data)
		return err
	}
	lint := func(data []byte) error {
		_, flaws := examineIndex(ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}, data)
		for _, f := range flaws {
			if !f.minor {
				return f.err
			}
		}
		return nil
	}
	announcement := func(data []byte) error {
		_, err := decodeAnnouncement(ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}, data, cheapProvider, cheapVersion)
		return err
	}
	manifest := func(data []byte) error { _, err := decodeManifest(data, TypeTarget, ErrNotProvider); return err }
	record := func(data []byte) error { _, err := decodeRecord(data); return err }
	announced := `{"artifactType":"application/vnd.opentofu.provider","annotations":{"io.github.ocibridge.provider":"a.example/b/c","io.github.ocibridge.version":"1.0.0",`
	targets := `{"artifactType":"application/vnd.opentofu.provider-target"}`
	for name, tc := range map[string]struct {
		document []byte
		decode   func([]byte) error
	}{
		"index: entries":              {cost.Filled(MaxManifestBytes, `{"manifests":[`, `{}`, `]}`), index},
		"index: entries, all flaws":   {cost.Filled(MaxManifestBytes, `{"manifests":[`, targets, `]}`), lint},
		"index: as many as there may": {cost.Counted(manifestLimits.Elements, `{"manifests":[`, targets, `]}`), lint},
		"index: annotations":          {cost.Filled(MaxManifestBytes, `{"annotations":{`, `"%d":""`, `}}`), index},
		"index: URLs":                 {cost.Filled(MaxManifestBytes, `{"manifests":[{"urls":[`, `""`, `]}]}`), index},
		"announcement: annotations":   {cost.Filled(MaxManifestBytes, announced, `"%d":""`, `}}`), announcement},
		"announcement: as many":       {cost.Counted(manifestLimits.Elements-10, announced, `"%d":""`, `}}`), announcement},
		"announcement: URLs":          {cost.Filled(MaxManifestBytes, announced+`"x":""},"manifests":[{"urls":[`, `""`, `]}]}`), announcement},
		"manifest: layers":            {cost.Filled(MaxManifestBytes, `{"layers":[`, `{}`, `]}`), manifest},
		"record: protocols":           {cost.Filled(maxEvidenceBytes, `{"protocols":[`, `""`, `]}`), record},
	} {
		t.Run(name, func(t *testing.T) {
			cost.Check(t, len(tc.document), true, func() error { return tc.decode(tc.document) })
		})
	}
}

// TestCostOfStates shows that decoding the largest states costs no more than a limit.
func TestCostOfStates(t *testing.T) {
	testkit.LeaveToAll(t)
	owner := provider.MustParseAddress("registry.acme.example/acme/widget")
	manifest := func(before, element, after string) (head, item, tail string) {
		quote := func(s string) string { q := strconv.Quote(s); return q[1 : len(q)-1] }
		head = `{"artifactType":"` + TypeState + `","annotations":{"` + annotationProvider + `":"` + owner.Path() + `","` + annotationState + `":"`
		return head + quote(before), quote(element), quote(after) + `"}}`
	}
	filled := func(before, element, after string) []byte {
		head, item, tail := manifest(before, element, after)
		return cost.Filled(MaxManifestBytes, head, item, tail)
	}
	counted := func(n int, before, element, after string) []byte {
		head, item, tail := manifest(before, element, after)
		return cost.Counted(n, head, item, tail)
	}
	summary := func(n int, before, element, after string) []byte {
		quote := func(s string) string { q := strconv.Quote(s); return q[1 : len(q)-1] }
		head := `{"artifactType":"` + TypeState + `","annotations":{"` + annotationProvider + `":"` + owner.Path() + `","` + annotationState + `":"{}","` + annotationVersions + `":"`
		return cost.Counted(n, head+quote(before), quote(element), quote(after)+`"}}`)
	}
	replaced := `{"mediaType":"` + ocispec.MediaTypeImageIndex + `","digest":"sha256:%064x","size":1,"version":"1.0.0"}`
	for name, tc := range map[string]struct {
		document []byte
		refused  bool
	}{
		"versions":                             {filled(`{"seen":{`, `"1.0.%d":"first sync"`, `}}`), true},
		"versions: as many as there may":       {counted(maxSeen, `{"seen":{`, `"1.0.%d":"2026-11-21T12:00:00Z"`, `}}`), false},
		"versions: one more":                   {counted(maxSeen+1, `{"seen":{`, `"1.0.%d":"first sync"`, `}}`), true},
		"names":                                {filled(`{`, `"%d":""`, `}`), true},
		"replaced manifests, empty":            {filled(`{"replaced":[`, `{}`, `]}`), true},
		"replaced manifests: as many as there": {counted(maxReplaced, `{"replaced":[`, replaced, `]}`), false},
		"replaced manifests: one more":         {counted(maxReplaced+1, `{"replaced":[`, replaced, `]}`), true},
		"summary: as many versions as there":   {summary(maxSummarized, `{"format":1,"groups":[{"verdict":"none","versions":{`, `"1.0.%d":"sha256:`+strings.Repeat("0", 64)+`"`, `}}]}`), false},
		"summary: one more":                    {summary(maxSummarized+1, `{"format":1,"groups":[{"verdict":"none","versions":{`, `"1.0.%d":"sha256:`+strings.Repeat("0", 64)+`"`, `}}]}`), false},
		"summary: groups":                      {summary(200_000, `{"format":1,"groups":[`, `{}`, `]}`), false},
		"summary: platforms":                   {summary(9_000, `{"format":1,"groups":[{"verdict":"none","platforms":[`, `"os%d_a"`, `]}]}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			cost.Check(t, len(tc.document), tc.refused, func() error {
				s, err := decodeState(tc.document, owner)
				if err == nil {
					_, err = EncodeState(*s)
				}
				return err
			})
		})
	}
}
