package embedded

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// TestExpired shows what a retention selects. The versions a, b and c were used 30, 20 and 10 days
// ago. Each has 100 B, of which a and b share 40 B.
func TestExpired(t *testing.T) {
	now := time.Now()
	sizes := map[digest.Digest]int64{"a": 60, "b": 60, "ab": 40, "c": 100}
	var versions []heldVersion
	for i, blobs := range [][]digest.Digest{{"a", "ab"}, {"b", "ab"}, {"c"}} {
		v := heldVersion{mark: pulledMark{tag: ociaddr.Tag(blobs[0]), lastUsed: now.Add(time.Duration(i-3) * 10 * useInterval)}, blobs: map[digest.Digest]bool{}}
		for _, d := range blobs {
			v.blobs[d] = true
		}
		versions = append(versions, v)
	}
	days := func(n int) time.Duration { return time.Duration(n) * useInterval }
	for name, tc := range map[string]struct {
		o    Retention
		want []string
	}{
		"no limit":            {Retention{}, nil},
		"all are used":        {Retention{Unused: days(31)}, nil},
		"exactly the limit":   {Retention{Unused: days(30)}, nil},
		"one is unused":       {Retention{Unused: days(25)}, []string{"a unused 60"}},
		"all are unused":      {Retention{Unused: days(1)}, []string{"a unused 60", "b unused 100", "c unused 100"}},
		"exactly the size":    {Retention{MaxSize: 260}, nil},
		"a byte too much":     {Retention{MaxSize: 259}, []string{"a max_size 60"}},
		"far too much":        {Retention{MaxSize: 150}, []string{"a max_size 60", "b max_size 100"}},
		"unused and too much": {Retention{Unused: days(25), MaxSize: 150}, []string{"a unused 60", "b max_size 100"}},
		"unused is enough":    {Retention{Unused: days(25), MaxSize: 200}, []string{"a unused 60"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range tc.o.expired(now, versions, sizes) {
				got = append(got, fmt.Sprint(e.Tag, " ", e.Reason, " ", e.Bytes))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
