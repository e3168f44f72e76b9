package deploy_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	alertRules = "prometheus/ocibridge.rules.yml"
	alertTests = "prometheus/ocibridge.test.yml"
)

// TestAlertRules runs promtool on the alert rules and on their unit tests. Each alert has a unit test, annotations, and
// a section in docs/reference/operations.md, to which its runbook leads.
func TestAlertRules(t *testing.T) {
	output(t, command(t, "promtool", "check", "rules", "--lint=all", "--lint-fatal", alertRules))
	output(t, command(t, "promtool", "test", "rules", alertTests))

	rules, tests, page := read(t, alertRules), read(t, alertTests), read(t, "../docs/reference/operations.md")
	alerts := submatches(rules, `(?m)^      - alert: (\w+)$`)
	if len(alerts) < 10 {
		t.Fatalf("alerts %q", alerts)
	}
	for i, block := range strings.Split(rules, "      - alert: ")[1:] {
		for _, want := range []string{"labels: { severity: ", "summary: ", "description: ", "runbook_url: https://github.com/ocibridge/ocibridge/blob/main/docs/reference/operations.md#" + strings.ToLower(alerts[i]) + "\n"} {
			if !strings.Contains(block, want) {
				t.Errorf("%s lacks %q", alerts[i], want)
			}
		}
	}
	if got := submatches(tests, `alertname="(\w+)",alertstate="firing"`); !slices.Equal(got, alerts) {
		t.Errorf("unit tests of %q, want %q", got, alerts)
	}
	if got := submatches(page, `(?m)^### (Ocibridge\w+)$`); !slices.Equal(got, alerts) {
		t.Errorf("docs/reference/operations.md has sections %q, want %q", got, alerts)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func submatches(text, pattern string) (out []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}
