package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// selfCalls is a closure in which a module calls other versions of itself.
type selfCalls struct {
	*moduleOrigin
	calls  []string
	failed string // a version whose calls are not known
	whole  error  // nothing is known
	err    error

	starts, offered string // of the last run
}

func (c *selfCalls) Follow(ctx context.Context, starts []reconcile.OfferedModule, offers reconcile.Offers) (*reconcile.CalledModules, error) {
	names := func(list []reconcile.OfferedModule) string {
		var out []string
		for _, o := range list {
			name := o.Version.String()
			if o.Stored {
				name = "=" + name
			}
			out = append(out, name)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	offered, err := offers(ctx, pushbench.VPC)
	c.starts, c.offered = names(starts), names(offered)
	if err = errors.Join(err, c.err); err != nil {
		return nil, err
	}
	out := &reconcile.CalledModules{Err: c.whole}
	if c.whole != nil {
		return out, nil
	}
	for _, s := range starts {
		out.Versions = append(out.Versions, reconcile.ModuleRelease{Module: s.Module, Version: s.Version})
	}
	for _, v := range c.calls {
		out.Versions = append(out.Versions, reconcile.ModuleRelease{Module: pushbench.VPC, Version: provider.MustParseVersion(v)})
	}
	if c.failed != "" {
		out.Failures = append(out.Failures, reconcile.Failure{Subject: pushbench.VPC, Version: provider.MustParseVersion(c.failed), Err: errors.New("unreadable")})
	}
	return out, nil
}

// TestSyncWithClosure shows that a sync stores and keeps the versions that a closure has in addition to those that the block
// selects, and prunes nothing if it is not known which these are.
func TestSyncWithClosure(t *testing.T) {
	b, o := newModuleBench(t, "1.0.0", "1.1.0", "2.0.0")
	c := &selfCalls{moduleOrigin: o, calls: []string{"1.0.0"}}
	b.options.Closure, b.want.Closure = c, true
	b.constraint("2.0.0")
	b.mustSync("+2.0.0 +1.0.0")
	if c.starts != "2.0.0" || c.offered != "1.0.0 1.1.0 2.0.0" {
		t.Errorf("starts %s, offered %s", c.starts, c.offered)
	}
	b.MustPushModule(o.fetched(provider.MustParseVersion("1.1.0")), pusher.Pushed)
	if _, plan := b.plan(); steps(plan) != "=2.0.0 =1.0.0" || plan.Unasked != 1 || c.starts != "=2.0.0" || c.offered != "=1.0.0 =1.1.0 =2.0.0" {
		t.Errorf("%s, %d unasked, starts %s, offered %s", steps(plan), plan.Unasked, c.starts, c.offered)
	}
	b.options.Prune, b.options.PruneLimit = true, 5
	// It is not known which versions are called.
	b.options.KeepModules = true
	if _, plan := b.plan(); steps(plan) != "=2.0.0 =1.0.0" || plan.Unasked != 1 || len(plan.Warnings) != 1 {
		t.Errorf("%s, %d unasked, %q", steps(plan), plan.Unasked, plan.Warnings)
	}
	b.options.KeepModules = false
	c.failed = "2.0.0"
	if _, plan := b.plan(); steps(plan) != "=2.0.0 =1.0.0" || len(plan.Failures) != 1 || len(plan.Warnings) != 1 {
		t.Errorf("%s, %v, %q", steps(plan), plan.Failures, plan.Warnings)
	}
	c.failed = ""
	// A moved version is a failure, and its calls are followed.
	o.commits["2.0.0"] = "2"
	if _, plan := b.plan(); steps(plan) != "-1.1.0 =1.0.0" || len(plan.Failures) != 1 || c.starts != "=2.0.0" {
		t.Errorf("%s, %v, starts %s", steps(plan), plan.Failures, c.starts)
	}
	o.commits["2.0.0"] = "1"
	b.mustSync("=2.0.0 -1.1.0 =1.0.0")
	// A version that could not be read is not pushed.
	o.commits["3.0.0"], c.failed = "1", "3.0.0"
	b.constraint(">= 2.0.0")
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || b.tags() != "1.0.0 2.0.0" {
		t.Errorf("%v, %v, %s", err, out.Failures, b.tags())
	}
	c.failed, c.err = "", errors.New("ended")
	if _, err := reconcile.NewSyncer(b.options).Plan(t.Context(), []reconcile.Want{b.want}); !errors.Is(err, c.err) {
		t.Error(err)
	}
}

// TestClosureThatIsNotKnown shows that nothing is pruned if nothing is known of a closure, and that the versions that the block
// selects are stored.
func TestClosureThatIsNotKnown(t *testing.T) {
	b, o := newModuleBench(t, "1.0.0", "2.0.0")
	c := &selfCalls{moduleOrigin: o, whole: errors.New("too large")}
	b.options.Closure, b.want.Closure = c, true
	b.options.Prune, b.options.PruneLimit = true, 5
	b.MustPushModule(o.fetched(provider.MustParseVersion("1.0.0")), pusher.Pushed)
	b.constraint("2.0.0")
	plan, out, err := b.sync()
	if err != nil || plan != "+2.0.0" || len(out.Failures) != 1 || out.Failures[0].Subject != nil || !errors.Is(out.Failures[0].Err, c.whole) || b.tags() != "1.0.0 2.0.0" {
		t.Errorf("too large: %v, %s, %+v, %s", err, plan, out, b.tags())
	}
}

// TestClosureWithCooldown shows that a closure is offered no version that waits.
func TestClosureWithCooldown(t *testing.T) {
	b, o := newModuleBench(t, "1.0.0", "2.0.0")
	c := &selfCalls{moduleOrigin: o}
	b.options.Closure, b.want.Closure, b.want.Cooldown = c, true, time.Hour
	b.constraint("1.0.0")
	b.mustSync("+1.0.0")
	if c.offered != "1.0.0 2.0.0" {
		t.Errorf("at first: %s", c.offered)
	}
	o.commits["3.0.0"] = "1"
	b.mustSync("=1.0.0")
	if c.offered != "2.0.0 =1.0.0" {
		t.Errorf("with a young version: %s", c.offered)
	}
	b.now = b.now.Add(time.Hour)
	b.mustSync("=1.0.0")
	if c.offered != "2.0.0 3.0.0 =1.0.0" {
		t.Errorf("an hour later: %s", c.offered)
	}
}
