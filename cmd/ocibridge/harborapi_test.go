package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
)

// The types and routes below imitate Harbor's REST API. The routes refuse fields that Harbor
// does not have.

type (
	harborProject struct {
		Name     string            `json:"project_name"`
		Metadata map[string]string `json:"metadata"`
		Limit    int64             `json:"storage_limit"`
		Registry int               `json:"registry_id"`
	}
	harborAccess struct{ Resource, Action string }
	harborRobot  struct {
		Name, Level string
		Duration    int
		Permissions []struct {
			Kind, Namespace string
			Access          []harborAccess
		}
	}
	harborSelector struct{ Kind, Decoration, Pattern, Extras string }
	harborRule     struct {
		Action, Template string
		Params           map[string]int
		Scopes           map[string][]harborSelector `json:"scope_selectors"`
		Tags             []harborSelector            `json:"tag_selectors"`
	}
	harborRetention struct {
		Algorithm string
		Scope     struct {
			Level string
			Ref   int
		}
		Trigger struct {
			Kind     string
			Settings map[string]string
		}
		Rules []harborRule
	}
	harborReplication struct {
		Name     string
		Registry struct{ ID int }               `json:"dest_registry"`
		Space    string                         `json:"dest_namespace"`
		Replaced int                            `json:"dest_namespace_replace_count"`
		Filters  []struct{ Type, Value string } `json:"filters"`
		Trigger  struct{ Type string }          `json:"trigger"`
		Enabled  bool                           `json:"enabled"`
		Override bool                           `json:"override"`
	}
)

const harborID = 7 // the ID of every object

func (h *harbor) routes(mux *http.ServeMux) {
	harborRoute(h, mux, "POST /projects", h.newProject)
	harborRoute(h, mux, "POST /robots", h.newRobot)
	harborRoute(h, mux, "GET /projects/providers", func(struct{}) (any, error) {
		metadata := map[string]string{"public": "false"}
		if h.retention != nil {
			metadata["retention_id"] = strconv.Itoa(harborID)
		}
		return map[string]any{"name": "providers", "project_id": harborID, "metadata": metadata}, nil
	})
	harborRoute(h, mux, "POST /retentions", func(r harborRetention) (any, error) {
		h.retention = &r
		return nil, nil
	})
	harborRoute(h, mux, "POST /retentions/7/executions", h.retain)
	harborRoute(h, mux, "POST /projects/providers/immutabletagrules", func(r harborRule) (any, error) {
		h.registry.Set(func(s *quirks.Settings) {
			s.Immutable, s.ImmutableCode = http.StatusPreconditionFailed, "PRECONDITION"
			s.Mutable = func(tag string) bool { return !r.selects(tag) }
		})
		return nil, r.everywhere()
	})
	harborRoute(h, mux, "GET /quotas", func(struct{}) (any, error) {
		if h.query.Get("reference") != "project" || h.query.Get("reference_id") != strconv.Itoa(harborID) {
			return nil, fmt.Errorf("Harbor would list the quotas of all projects to the query %v", h.query)
		}
		return []any{json.RawMessage(`{"hard":{"storage":53687091200},"id":7,"ref":{"id":8}}`)}, nil
	})
	harborRoute(h, mux, "PUT /quotas/7", func(q struct{ Hard struct{ Storage int64 } }) (any, error) {
		h.registry.Set(func(s *quirks.Settings) { s.Quota = q.Hard.Storage })
		return nil, nil
	})
	harborRoute(h, mux, "POST /registries", func(struct {
		Name, Type, URL string
		Credential      struct {
			Type   string
			Key    string `json:"access_key"`
			Secret string `json:"access_secret"`
		}
	}) (any, error) {
		return nil, nil
	})
	harborRoute(h, mux, "GET /registries", func(struct{}) (any, error) {
		return []any{json.RawMessage(`{"credential":{"type":"basic"},"id":7,"name":"other"}`)}, nil
	})
	harborRoute(h, mux, "POST /replication/policies", func(r harborReplication) (any, error) {
		h.replicated++
		return nil, nil
	})
}

// harborRoute adds a route that only the administrator can use. The body of each request is a
// T in JSON.
func harborRoute[T any](h *harbor, mux *http.ServeMux, pattern string, answer func(T) (any, error)) {
	method, at, _ := strings.Cut(pattern, " ")
	mux.HandleFunc(method+" /api/v2.0"+at, func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if user, password, _ := r.BasicAuth(); user != "admin" || password != adminPassword {
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		h.query = r.URL.Query()
		var body T
		if method != http.MethodGet {
			d := json.NewDecoder(r.Body)
			d.DisallowUnknownFields()
			if err := d.Decode(&body); err != nil {
				h.t.Errorf("%s: %v", pattern, err)
			}
		}
		out, err := answer(body)
		if err != nil {
			h.t.Errorf("%s: %v", pattern, err)
		}
		if out != nil {
			json.NewEncoder(w).Encode(out)
		}
	})
}

func (h *harbor) newProject(p harborProject) (any, error) {
	h.projects[p.Name] = p
	h.registry.Create(p.Name)
	h.registry.Set(func(s *quirks.Settings) { s.Quota = max(s.Quota, p.Limit) })
	return nil, nil
}

// newRobot creates a robot. Of the robot's rights, only the rights to repositories and to the
// catalog have an effect.
func (h *harbor) newRobot(r harborRobot) (any, error) {
	b := quirks.Robot{User: "robot$" + r.Name, Password: "secret-of-" + r.Name, Rights: map[string][]string{}}
	for _, p := range r.Permissions {
		if r.Level == "project" {
			b.User = "robot$" + p.Namespace + "+" + r.Name
		}
		for _, a := range p.Access {
			switch {
			case p.Kind == "project" && a.Resource == "repository":
				b.Rights[p.Namespace] = append(b.Rights[p.Namespace], a.Action)
			case p.Kind == "system" && a == harborAccess{"catalog", "read"}:
				b.Catalog = true
			}
		}
	}
	h.robots[b.User] = b.Rights["providers"]
	h.registry.Set(func(s *quirks.Settings) { s.Robots = append(slices.Clone(s.Robots), b) })
	h.write("secret-"+b.User, b.Password)
	return map[string]any{"id": harborID, "name": b.User, "secret": b.Password}, nil
}

// retain applies the retention rules to the registry. The registry also deletes all manifests
// without a tag.
func (h *harbor) retain(run struct {
	DryRun bool `json:"dry_run"`
}) (any, error) {
	if run.DryRun {
		return nil, nil
	}
	var rules []quirks.Retention
	for _, r := range h.retention.Rules {
		if err := r.everywhere(); err != nil {
			return nil, err
		}
		if r.Tags[0].Extras != `{"untagged":true}` {
			return nil, fmt.Errorf("rule %s counts artifacts without a tag as versions, or deletes them", r.Template)
		}
		if k := r.Params["latestPushedK"]; r.Action != "retain" || (r.Template == "latestPushedK") != (k > 0) {
			return nil, fmt.Errorf("rule %+v", r)
		}
		rules = append(rules, quirks.Retention{Tags: r.selects, Keep: r.Params["latestPushedK"]})
	}
	repository := "providers/" + howToProvider
	if err := h.registry.Retain(repository, rules...); err != nil {
		return nil, err
	}
	c, err := h.registry.Contents(repository)
	if err != nil {
		return nil, err
	}
	h.retained = slices.Sorted(maps.Keys(c.Tags))
	return nil, nil
}

// selects reports whether a rule applies to a tag.
func (r harborRule) selects(tag string) bool {
	matches, err := path.Match(strings.ReplaceAll(r.Tags[0].Pattern, "**", "*"), tag) // a tag has no slash
	return err == nil && matches == (r.Tags[0].Decoration == "matches")
}

// everywhere returns an error unless a rule applies to every repository and has exactly one
// tag selector.
func (r harborRule) everywhere() error {
	if want := (harborSelector{Kind: "doublestar", Decoration: "repoMatches", Pattern: "**"}); len(r.Scopes["repository"]) != 1 || r.Scopes["repository"][0] != want || len(r.Tags) != 1 {
		return fmt.Errorf("scopes %v, tags %v", r.Scopes, r.Tags)
	}
	return nil
}
