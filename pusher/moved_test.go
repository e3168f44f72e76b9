package pusher_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// fetched returns a module that was fetched from a Git repository at a commit of 40 equal digits.
func fetched(t *testing.T, content, commit string) pushbench.Module {
	pkg := pushbench.ModulePackage(t, "1.0.0", content)
	pkg.Revision = strings.Repeat(commit, 40)
	pkg.Source = artifact.Provenance{Location: "git::https://git.acme.example/vpc?ref=v1.0.0", Tree: strings.Repeat("e", 40)}
	return pkg
}

// TestMovedModule checks that a version whose origin names another commit is refused, even if its files are the same. The
// stored version stays until --force replaces it, and the state then notes the replaced manifest.
func TestMovedModule(t *testing.T) {
	b := newBench(t)
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	b.Options.Now = func() time.Time { return noon }
	one := fetched(t, "one", "1")
	first := b.MustPushModule(one, pusher.Pushed)
	b.Registry.Reset()
	for name, moved := range map[string]pushbench.Module{"same files": fetched(t, "one", "2"), "other files": fetched(t, "two", "2")} {
		_, err := b.PushModule(moved)
		_, planned := pusher.New(b.Options).PlanZip(t.Context(), b.ModuleDestination(), moved.Stored(), moved.Open)
		if !errors.Is(err, pusher.ErrMoved) || !errors.Is(planned, pusher.ErrMoved) || !errors.Is(err, pusher.ErrConflict) || !strings.Contains(hint.Of(err), "--force") {
			t.Errorf("%s: %v, planned %v (%s)", name, err, planned, hint.Of(err))
		}
		for _, commit := range []string{one.Revision, moved.Revision} {
			if err == nil || !strings.Contains(err.Error(), commit) {
				t.Errorf("%s: %v does not name %s", name, err, commit)
			}
		}
	}
	if _, err := b.PushModule(fetched(t, "two", "1")); !errors.Is(err, pusher.ErrConflict) || errors.Is(err, pusher.ErrMoved) {
		t.Errorf("other files of the same commit: %v", err)
	}
	if n := b.Registry.Count(recorder.Writes()); n != 0 {
		t.Errorf("%d requests that write", n)
	}
	b.Options.Force = true
	two := fetched(t, "two", "2")
	r := b.MustPushModule(two, pusher.Replaced)
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], one.Revision) || !strings.Contains(r.Warnings[0], two.Revision) {
		t.Errorf("warnings %q", r.Warnings)
	}
	state, _, err := artifact.ReadState(t.Context(), b.Repo, pushbench.VPC)
	if err != nil || len(state.Replaced) != 1 || state.Replaced[0].Manifest.Digest.String() != first.Digest {
		t.Errorf("state %+v, %v", state, err)
	}
}

// TestMovedFolder checks that a version whose module is in another folder of the same zip is refused, whether the stored
// version was fetched from Git or from an archive, or pushed from a folder.
func TestMovedFolder(t *testing.T) {
	git := fetched(t, "one", "1")
	archive := git
	archive.Revision, archive.Source = "", artifact.Provenance{Location: "https://files.acme.example/vpc.zip"}
	own := pushbench.ModulePackage(t, "1.0.0", "one")
	for name, tc := range map[string]struct {
		stored, pushed pushbench.Module
		was, is        string
		want           error
		says           []string
	}{
		"git":              {git, git, "a", "b", pusher.ErrMoved, []string{"vpc//a?", "vpc//b?", helpAsk}},
		"git, to the root": {git, git, "a", "", pusher.ErrMoved, []string{"vpc//a?", "vpc?ref", helpAsk}},
		"archive":          {archive, archive, "a", "b", pusher.ErrMoved, []string{"vpc.zip//a", "vpc.zip//b", helpAsk}},
		"pushed folder":    {own, git, "", "b", pusher.ErrConflict, []string{"vpc//b?", "folder b", "was pushed from a folder"}},
		"folder of one's":  {git, own, "a", "", pusher.ErrConflict, []string{"folder a", "was fetched from git::https"}},
	} {
		b := newBench(t)
		b.MustPushModule(inFolder(tc.stored, tc.was), pusher.Pushed)
		b.MustPushModule(inFolder(tc.stored, tc.was), pusher.Unchanged)
		b.Registry.Reset()
		_, err := b.PushModule(inFolder(tc.pushed, tc.is))
		for _, says := range tc.says {
			if !errors.Is(err, tc.want) || !errors.Is(err, pusher.ErrConflict) || !strings.Contains(err.Error()+hint.Of(err), says) {
				t.Errorf("%s: there is no %q in %v (%s)", name, says, err, hint.Of(err))
			}
		}
		if n := b.Registry.Count(recorder.Writes()); n != 0 {
			t.Errorf("%s: %d requests that write", name, n)
		}
	}
}

const helpAsk = "Ask the publisher"

// inFolder returns a module with its location in a folder.
func inFolder(m pushbench.Module, folder string) pushbench.Module {
	if folder == "" {
		return m
	}
	m.Source.Folder = folder
	before, query, ok := strings.Cut(m.Source.Location, "?")
	if m.Source.Location = before + "//" + folder; ok {
		m.Source.Location += "?" + query
	}
	return m
}

// TestBrokenModuleState checks that the messages about a module's broken state speak of modules.
func TestBrokenModuleState(t *testing.T) {
	b := newBench(t)
	b.MustPushModule(fetched(t, "one", "1"), pusher.Pushed)
	at := b.MustPushModule(fetched(t, "one", "1"), pusher.Unchanged)
	desc, err := b.Repo.Resolve(t.Context(), string(at.Tag))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Repo.Tag(t.Context(), desc, string(ociaddr.StateTag)); err != nil {
		t.Fatal(err)
	}
	p := pusher.New(b.Options)
	pkg := fetched(t, "one", "1")
	if _, err := p.PushZip(t.Context(), b.ModuleDestination(), pkg.Stored(), pkg.Open); err != nil {
		t.Fatal(err)
	}
	err = p.Summarize(t.Context())
	if text := repo.FetchedWarning(err); !strings.Contains(text, "first fetched is not recorded") || strings.Contains(text, "summary") || !strings.Contains(hint.Of(err), "if the module has a cooldown") {
		t.Errorf("%s (%s)", text, hint.Of(err))
	}
}

// TestFirstFetch checks that the state of a module's repository has the time at which a version was first fetched, and that
// the version itself does not depend on it.
func TestFirstFetch(t *testing.T) {
	b := newBench(t)
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var digests []string
	for _, at := range []time.Time{noon, noon.Add(time.Hour)} {
		b.Options.Now = func() time.Time { return at }
		p := pusher.New(b.Options)
		pkg := fetched(t, "one", "1")
		r, err := p.PushZip(t.Context(), b.ModuleDestination(), pkg.Stored(), pkg.Open)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, r.Digest)
		if err := p.Summarize(t.Context()); err != nil {
			t.Fatal(err)
		}
		state, _, err := artifact.ReadState(t.Context(), b.Repo, pushbench.VPC)
		if err != nil || !state.Seen[provider.MustParseVersion("1.0.0")].Equal(noon) {
			t.Errorf("at %s: state %+v, %v", at, state, err)
		}
	}
	other := newBench(t)
	if r := other.MustPushModule(fetched(t, "one", "1"), pusher.Pushed); r.Digest != digests[0] || digests[1] != digests[0] {
		t.Errorf("digests %v and %s", digests, r.Digest)
	}
}
