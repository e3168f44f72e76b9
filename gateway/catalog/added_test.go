package catalog_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
)

// wantAdded gets widget's versions, and checks when the catalog has seen the list gain a version.
func (b *bench) wantAdded(what string, want time.Time) {
	b.t.Helper()
	item, err := b.Versions(b.t.Context(), widget)
	if err != nil {
		b.t.Errorf("%s: %v", what, err)
		return
	}
	if got := item.Added(); !got.Equal(want) {
		b.t.Errorf("%s: added %v, want %v", what, got, want)
	}
	if got := b.Catalog.Added()[widget]; !got.Equal(want) {
		b.t.Errorf("%s: in memory, added %v, want %v", what, got, want)
	}
	synctest.Wait() // the answer is on disk
}

// TestAdded shows that only an answer with a version that the answer before lacked is a push.
func TestAdded(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.wantAdded("the first answer", time.Time{})
		pass(time.Minute)
		b.wantAdded("the same answer", time.Time{})
		b.publish(b.t, widget, v110, "two")
		pass(time.Minute)
		pushed := time.Now()
		b.wantAdded("a new version", pushed)
		pass(time.Minute)
		b.wantAdded("the same again", pushed)
		delete(b.tags[widget], "1.0.0")
		pass(time.Minute)
		b.wantAdded("a removal", pushed)
		b.publish(b.t, widget, v100, "one")
		pass(time.Minute)
		b.wantAdded("pushed again", time.Now())
		delete(b.tags, widget)
		pass(time.Minute)
		if _, err := b.Versions(b.t.Context(), widget); err == nil {
			b.t.Error("the removed provider has versions")
		}
		b.publish(b.t, widget, v100, "one")
		b.down(unreachable)
		pass(time.Minute)
		if _, err := b.Versions(b.t.Context(), widget); err == nil {
			b.t.Error("an absence is served stale")
		}
		b.down(nil)
		pass(time.Minute)
		b.wantAdded("in a repository that was absent", time.Now())
	})
}

// TestAddedSurvivesARestart shows that the time is kept on disk, and that the answer on disk is one to compare with.
func TestAddedSurvivesARestart(t *testing.T) {
	onDisk(t, t.TempDir(), nil, func(k *kept) {
		k.wantAdded("the first answer", time.Time{})
		k.publish(k.t, widget, v110, "two")
		pass(time.Minute)
		pushed := time.Now()
		k.wantAdded("a new version", pushed)
		k.restart()
		k.wantAdded("from disk", pushed)
		pass(time.Minute)
		k.wantAdded("confirmed", pushed)
		pass(time.Hour)
		k.restart()
		k.wantAdded("confirmed after an hour", pushed)
		k.Close()
		delete(k.tags[widget], "1.0.0")
		pass(time.Hour)
		k.restart()
		k.wantAdded("removed in between", pushed)
		k.Close()
		k.publish(k.t, widget, v100, "one")
		pass(time.Hour)
		k.restart()
		k.wantAdded("pushed in between", time.Now())
		k.Refresh(widget)
		k.wantAdded("dropped by an operator", time.Time{})
	})
}

// TestAddedInARecord reads records that another release has written, or another clock.
func TestAddedInARecord(t *testing.T) {
	for name, replaced := range map[string]string{"of an earlier release": "", "of a clock that was wrong": `,"added":"2099-01-01T00:00:00Z"`} {
		t.Run(name, func(t *testing.T) {
			onDisk(t, t.TempDir(), nil, func(k *kept) {
				k.wantAdded("the first answer", time.Time{})
				k.publish(k.t, widget, v110, "two")
				pass(time.Minute)
				k.wantAdded("a new version", time.Now())
				k.Close()
				file := catalog.RecordFile(k.Catalog, widget, "list")
				data, err := os.ReadFile(file)
				if err != nil {
					k.t.Fatal(err)
				}
				_, body, _ := bytes.Cut(data, []byte("\n"))
				changed := regexp.MustCompile(`,"added":"[^"]*"`).ReplaceAllString(string(body), replaced)
				if changed == string(body) {
					k.t.Fatalf("the record: %s", body)
				}
				changed = fmt.Sprintf("%x\n%s", sha256.Sum256([]byte(changed)), changed)
				if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
					k.t.Fatal(err)
				}
				k.restart()
				k.wantAdded("after a restart", time.Time{})
				if n := k.requests(); n != "[]" {
					k.t.Errorf("the record is not used: %s", n)
				}
				pass(time.Minute)
				k.wantAdded("confirmed", time.Time{})
			})
		})
	}
}
