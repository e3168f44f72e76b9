package quirks_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// TestCopyBetweenProjects shows that versions can be copied from one Harbor project to another, although the
// robot of each project has no rights in the other project.
func TestCopyBetweenProjects(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to string
		mounts   bool
	}{
		"forth":              {from: "alpha", to: "beta"},
		"back":               {from: "beta", to: "alpha"},
		"forth, with mounts": {from: "alpha", to: "beta", mounts: true},
		"back, with mounts":  {from: "beta", to: "alpha", mounts: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, twoProjects(t))
			b.registry.Create("alpha")
			b.registry.Create("beta")
			b.useLogins(loginsByProject(b.profile))
			source, dest := b.inProject(tc.from), b.inProject(tc.to)
			b.pushTo(source)
			b.requests.Reset()

			into := repo.Destination{Repository: dest.repository, Store: dest.store}
			if tc.mounts {
				into.Sibling = source.repository.Name
			}
			p := pusher.New(pusher.Options{
				RetryPause: time.Millisecond, Jobs: 1,
				Destination: func(context.Context, subject.Address) (repo.Destination, error) { return into, nil },
			})
			for _, v := range versions {
				from := pusher.Stored{Subject: widget, Repository: source.repository, Store: source.store}
				r, err := p.Copy(t.Context(), from, provider.MustParseVersion(v), nil)
				if err != nil {
					t.Fatalf("%s: %v (%s)", v, b.client.Explain(err, dest.repository), hint.Of(err))
				}
				if r.Status != pusher.Pushed || len(r.Warnings) > 0 || !r.Packages[0].Sent || !r.Packages[1].Sent {
					t.Errorf("%s: %+v", v, r)
				}
			}
			b.checkTokens(source.repository.Name, tc.mounts)
		})
	}
}

// twoProjects returns the Harbor profile with a robot for the project alpha and a robot for the project beta.
func twoProjects(t *testing.T) quirks.Profile {
	p := profile(t, "harbor")
	p.User, p.Template = "robot$alpha+ci", strings.Replace(p.Template, "/providers/", "/alpha/", 1)
	p.Robots = []quirks.Robot{{User: "robot$beta+ci", Password: "0ther-pass", Rights: map[string][]string{"beta": {"pull", "push"}}}}
	return p
}

// loginsByProject returns a login file with one login for each of the two projects.
func loginsByProject(p quirks.Profile) string {
	entry := func(project, user, password string) string {
		return fmt.Sprintf(`"%s/%s": {"auth": %q}`, p.Registry, project, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	}
	beta := p.Robots[0]
	return `{"auths": {` + entry("alpha", p.User, p.Password) + ", " + entry("beta", beta.User, beta.Password) + "}}"
}

// inRegistry is a repository with its client.
type inRegistry struct {
	repository ociaddr.Repository
	store      registry.Repository
}

// inProject returns the repository of the provider widget in a project.
func (b *bench) inProject(project string) inRegistry {
	b.t.Helper()
	repo := ociaddr.Repository{Registry: ociaddr.Registry(b.profile.Registry), Name: project + "/" + widget.Path()}
	client, err := b.client.RepositoryWithReferrers(b.t.Context(), repo)
	if err != nil {
		b.t.Fatal(err)
	}
	return inRegistry{repo, registry.Repository{Repository: client}}
}

// pushTo pushes every version into a repository.
func (b *bench) pushTo(at inRegistry) {
	b.t.Helper()
	p := pusher.New(pusher.Options{Destination: func(context.Context, subject.Address) (repo.Destination, error) {
		return repo.Destination{Repository: at.repository, Store: at.store}, nil
	}})
	for _, v := range versions {
		listing, err := b.origin.Versions(b.t.Context(), widget)
		if err != nil {
			b.t.Fatal(err)
		}
		r, err := b.origin.Release(b.t.Context(), widget, listing, provider.MustParseVersion(v), nil)
		if err == nil {
			_, err = p.Push(b.t.Context(), r)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// checkTokens checks that every token was requested for a single repository. With mounts, one token for two
// repositories is expected. The client requests this token for the first mount, and the registry refuses the
// mount.
func (b *bench) checkTokens(source string, mounts bool) {
	b.t.Helper()
	tokens, wide := 0, 0
	for _, r := range b.requests.Requests(recorder.Path("/token")) {
		query, err := url.ParseQuery(r.Query)
		if err != nil {
			b.t.Fatal(err)
		}
		tokens++
		if scopes := strings.Fields(strings.Join(query["scope"], " ")); len(scopes) != 1 {
			wide++
		}
	}
	tried := b.requests.Count(recorder.Method(http.MethodPost), func(r recorder.Request) bool { return strings.Contains(r.Query, "from="+url.QueryEscape(source)) })
	if !mounts && (wide != 0 || tried != 0) {
		b.t.Errorf("%d of %d tokens are for two repositories; %d mounts", wide, tokens, tried)
	}
	// The client repeats a mount after each challenge.
	if mounts && (wide != 1 || tried == 0 || tried > 3) {
		b.t.Errorf("%d of %d tokens are for two repositories; %d requests for mounts", wide, tokens, tried)
	}
}
