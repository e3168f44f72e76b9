package pull

import (
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/provider"
)

// TestSeenByAll shows that the earliest time at which a process saw a version appear stays on
// disk. A time from disk wins over no time.
func TestSeenByAll(t *testing.T) {
	type seen = map[provider.Version]time.Time
	one, two := provider.MustParseVersion("1.0.0"), provider.MustParseVersion("2.0.0")
	early, late := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct{ disk, own, want seen }{
		"nothing on disk":   {nil, seen{one: late}, seen{one: late}},
		"earlier on disk":   {seen{one: early}, seen{one: late}, seen{one: early}},
		"later on disk":     {seen{one: late}, seen{one: early}, seen{one: early}},
		"appeared on disk":  {seen{one: late}, seen{one: {}}, seen{one: late}},
		"appeared here":     {seen{one: {}}, seen{one: late}, seen{one: late}},
		"another version":   {seen{two: early}, seen{one: late}, seen{one: late}},
		"no cooldown here":  {seen{one: early}, nil, seen{one: early}},
		"no cooldown there": {nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := puller(t, &source{}, Options{Directory: t.TempDir()})
			for _, seen := range []seen{tt.disk, tt.own} {
				if err := p.writeList(widget, &list{at: late, seen: seen}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := p.readList(widget)
			if tt.want == nil {
				if err == nil {
					t.Errorf("kept %v", got.seen)
				}
				return
			}
			if err != nil || len(got.seen) != len(tt.want) {
				t.Fatalf("%v, %v", got, err)
			}
			for v, at := range tt.want {
				if !got.seen[v].Equal(at) {
					t.Errorf("%s: %s, want %s", v, got.seen[v], at)
				}
			}
		})
	}
}
