package quirks_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// TestHarborRobots shows that a robot that may not delete can push. A later prune by a robot that may
// delete removes the tags and manifests that the first robot had to leave.
func TestHarborRobots(t *testing.T) {
	p := profile(t, "harbor")
	rights := func(actions ...string) map[string][]string { return map[string][]string{"providers": actions} }
	ci := quirks.Robot{User: "robot$providers+push", Password: "push", Rights: rights("pull", "push")}
	prune := quirks.Robot{User: "robot$providers+prune", Password: "prune", Rights: rights("pull", "push", "delete")}
	p.Robots = []quirks.Robot{ci, prune}
	b := newBench(t, p)
	b.registry.Create("providers")
	as := func(r quirks.Robot) { b.login(quirks.Access{User: r.User, Password: r.Password}) }

	as(ci)
	b.mustPush("1.1.0", true, false, "linux_amd64")
	b.mustPush("1.1.0", true, false, "darwin_amd64")
	if n := announcements(b.contents()); n != 2 {
		t.Errorf("%d announcements, want 2", n)
	}
	out := b.sync(reconcile.Want{}, "~> 1.0, < 1.10")
	if err := failure(out); err != nil || len(out.Warnings) == 0 || !strings.Contains(out.Warnings[0], "ocibridge-part are left") {
		t.Errorf("sync: %v (%s), warnings %q", err, hint.Of(err), out.Warnings)
	}
	out = b.sync(reconcile.Want{}, "1.1.0")
	if err := failure(out); err == nil || len(out.Pruned) != 0 || !b.saysRightToDelete(hint.Of(err)) {
		t.Errorf("prune without the right: %v (%s), pruned %d", err, hint.Of(err), len(out.Pruned))
	}
	versions := slices.DeleteFunc(b.contents().TagNames(), func(tag string) bool { return strings.HasPrefix(tag, "ocibridge-") })
	if !slices.Equal(versions, []string{"1.0.0", "1.1.0"}) {
		t.Errorf("versions %q", versions)
	}

	as(prune)
	out = b.sync(reconcile.Want{}, "1.1.0")
	if err := failure(out); err != nil || len(out.Pruned) != 1 || len(out.Warnings) != 0 {
		t.Errorf("prune: %v (%s), pruned %d, warnings %q", err, hint.Of(err), len(out.Pruned), out.Warnings)
	}
	b.checkTags("pruned", "1.1.0")
	b.checkLeft("pruned", true)
	as(ci)
	b.mustPush("1.0.0", false, false)
	b.checkTags("pushed again", "1.0.0", "1.1.0")
	for _, v := range []string{"1.0.0", "1.1.0"} {
		if status, body := b.serve()(host + "/acme/widget/" + v + ".json"); status != http.StatusOK || !strings.Contains(body, "darwin_amd64") {
			t.Errorf("%s: %d %s", v, status, body)
		}
	}
}
