package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// The tests in this file compare docs/reference/operations.md and the dashboard with the program. A
// test in package gateway compares the endpoints.

const root = "../.."

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// metricNames returns the names of all metrics.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	described := make(chan *prometheus.Desc, 1000)
	telemetry.NewMetrics("").Gatherer().(prometheus.Collector).Describe(described)
	close(described)
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	out := map[string]bool{}
	for d := range described {
		m := name.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("a metric without a name: %s", d)
		}
		out[m[1]] = true
	}
	if len(out) < 20 || !out["ocibridge_http_requests_total"] || !out["go_goroutines"] {
		t.Fatalf("metrics %v", out)
	}
	return out
}

func TestEveryMetricIsDocumented(t *testing.T) {
	page := readFile(t, "docs/reference/operations.md")
	names := metricNames(t)
	for name := range names {
		if !strings.Contains(page, "`"+name+"`") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("docs/reference/operations.md does not describe %s", name)
		}
	}
	wantMetrics(t, "docs/reference/operations.md", page, names)
}

var (
	metricName = regexp.MustCompile(`\b(?:ocibridge|go|process)_[a-z0-9_]*[a-z0-9]\b`)
	ofAKind    = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// wantMetrics fails if a text names a metric that does not exist.
func wantMetrics(t *testing.T, where, text string, names map[string]bool) {
	t.Helper()
	found := metricName.FindAllString(text, -1)
	for _, name := range found {
		if !names[name] && !names[ofAKind.ReplaceAllString(name, "")] {
			t.Errorf("%s names the metric %s, which does not exist", where, name)
		}
	}
	if len(found) == 0 {
		t.Errorf("%s names no metric", where)
	}
}

// TestAlertsNameMetrics checks that the alert rules and their unit tests use existing metrics.
func TestAlertsNameMetrics(t *testing.T) {
	names := metricNames(t)
	for _, file := range []string{"deploy/prometheus/ocibridge.rules.yml", "deploy/prometheus/ocibridge.test.yml"} {
		wantMetrics(t, file, readFile(t, file), names)
	}
}

// TestDashboard checks that each panel shows existing metrics.
func TestDashboard(t *testing.T) {
	const file = "deploy/grafana/ocibridge.json"
	var dashboard struct {
		Title  string
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, file)), &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.Title == "" || len(dashboard.Panels) < 10 {
		t.Errorf("%s: %q with %d panels", file, dashboard.Title, len(dashboard.Panels))
	}
	names := metricNames(t)
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			wantMetrics(t, "panel "+p.Title, target.Expr, names)
		}
	}
}

// TestEveryLogLineIsDocumented checks that the documentation contains the names of all log
// fields and span attributes in the source. It must also contain the messages of all warnings
// and errors.
func TestEveryLogLineIsDocumented(t *testing.T) {
	page := readFile(t, "docs/reference/operations.md")
	l := &logged{fields: map[string]string{telemetry.LogKey: "internal/base/telemetry"}, messages: map[string]string{}, fset: token.NewFileSet()}
	for _, dir := range []string{"artifact", "auth", "cmd", "gateway", "internal", "ociaddr", "origin", "provider", "pusher", "templates", "trust"} {
		l.readAll(t, dir)
	}
	if len(l.fields) < 30 || len(l.messages) < 15 || l.fields["subject"] == "" || l.fields["refused_so_far"] == "" || l.messages["cannot answer"] == "" {
		t.Fatalf("found %v\n%v", l.fields, l.messages)
	}
	for _, field := range slices.Sorted(maps.Keys(l.fields)) {
		if !strings.Contains(page, "`"+field+"`") {
			t.Errorf("docs/reference/operations.md does not say what %q is, in %s", field, l.fields[field])
		}
	}
	_, todo, ok := strings.Cut(page, "### Warnings and errors")
	if !ok {
		t.Fatal("docs/reference/operations.md has no part about warnings and errors")
	}
	for _, message := range slices.Sorted(maps.Keys(l.messages)) {
		if !strings.Contains(todo, "`"+message+"`") {
			t.Errorf("docs/reference/operations.md does not say what to do about %q, in %s", message, l.messages[message])
		}
	}
}

// logged maps the names and messages that the source code logs to their positions.
type logged struct {
	fset             *token.FileSet
	fields, messages map[string]string
}

// readAll reads the source files below a folder.
func (l *logged) readAll(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{"testkit", "testdata", "demo", "bench"}, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(l.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			l.look(n)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// levels maps each method of [slog.Logger] that logs to the number of arguments before the
// message.
var levels = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1, "Log": 2, "LogAttrs": 2,
}

// look records the messages and attributes of calls that log, and the lists of fields that are
// logged later.
func (l *logged) look(n ast.Node) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		if a, ok := n.Type.(*ast.ArrayType); ok && nameOf(a.Elt) == "any" {
			l.pairs(n.Elts)
		}
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			return
		}
		if of, ok := f.X.(*ast.Ident); ok && of.Name == "slog" && len(n.Args) == 2 {
			l.field(n.Args[0])
			return
		}
		skip, ok := levels[f.Sel.Name]
		if !ok || !strings.EqualFold(nameOf(f.X), "log") || len(n.Args) <= skip {
			return
		}
		if message, ok := text(n.Args[skip]); ok && matters(f.Sel.Name, n) {
			l.messages[message] = l.fset.Position(n.Pos()).String()
		}
		l.pairs(n.Args[skip+1:])
	}
}

// matters reports whether a call logs a warning or an error.
func matters(method string, call *ast.CallExpr) bool {
	level := strings.TrimSuffix(method, "Context")
	if strings.HasPrefix(method, "Log") {
		level = strings.TrimPrefix(nameOf(call.Args[1]), "Level") // matters also returns true if the level is in a variable
	}
	return level != "Info" && level != "Debug"
}

// pairs records the names in a list of alternating names and values. If the list contains a
// call of append, pairs also records the names in its arguments.
func (l *logged) pairs(list []ast.Expr) {
	for i := 0; i < len(list); i++ {
		if call, ok := list[i].(*ast.CallExpr); ok {
			if nameOf(call.Fun) == "append" && len(call.Args) > 1 {
				l.pairs(call.Args[1:])
			}
			continue
		}
		l.field(list[i])
		i++
	}
}

func (l *logged) field(e ast.Expr) {
	if name, ok := text(e); ok {
		l.fields[name] = l.fset.Position(e.Pos()).String()
	}
}

// text returns the value of a string literal.
func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// nameOf returns the last name of an expression.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
