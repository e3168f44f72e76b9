package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/ocibridge/ocibridge/internal/app/accesslog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

var (
	widget = provider.MustParseAddress("registry.acme.example/acme/widget")
	vpc    = module.MustParseAddress("registry.acme.example/acme/vpc/aws")
	v1     = provider.MustParseVersion("1.0.0")
	noon   = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
)

// formats are the handlers of both formats of the log.
var formats = map[string]func(io.Writer) slog.Handler{
	"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
	"json": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
}

// written returns a line of the log, as serve writes it.
func written(format string, at time.Time, message string, attrs ...any) string {
	var out bytes.Buffer
	r := slog.NewRecord(at, slog.LevelInfo, message, 0)
	r.Add(attrs...)
	_ = formats[format](&out).Handle(context.Background(), r) // never fails
	return out.String()
}

// request is a line about a request for a package.
func request(format string, at time.Time, status int, attrs ...any) string {
	all := []any{"method", "GET", "path", "/providers/registry.acme.example/acme/widget/1.0.0/linux_amd64/p.zip", "status", status, "bytes", 1, "duration", time.Millisecond,
		"client", "10.0.0.1:4000", "agent", "OpenTofu/1.10 (+https://opentofu.org)", "request_id", "R"}
	for i := 0; i < len(attrs); i += 2 {
		if at := slices.Index(all, attrs[i]); at >= 0 {
			all[at+1] = attrs[i+1]
		} else {
			all = append(all, attrs[i], attrs[i+1])
		}
	}
	return written(format, at, "request", all...)
}

// read returns a reader that has read a log.
func read(t testing.TB, o accesslog.Options, logs ...string) *accesslog.Reader {
	t.Helper()
	r := accesslog.NewReader(o)
	for _, log := range logs {
		if err := r.Read(t.Context(), "log", strings.NewReader(log)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// summary describes all uses: for each user of each version, the number of installations, and of redirects among them.
func summary(r *accesslog.Reader) string {
	var out []string
	add := func(of subject.Address, all []accesslog.Used) {
		for _, v := range all {
			for _, u := range v.Users {
				out = append(out, fmt.Sprintf("%s %s %s %d/%d", of, v.Version, u.Name, u.Installs, u.Redirects))
			}
		}
	}
	for a, all := range accesslog.Of[provider.Address](r) {
		add(a, all)
	}
	for a, all := range accesslog.Of[module.Address](r) {
		add(a, all)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// TestWhatCounts shows which requests use a version, and which of them install it.
func TestWhatCounts(t *testing.T) {
	with := func(more ...any) []any {
		return append([]any{"provider", widget.String(), "version", "1.0.0"}, more...)
	}
	for name, tt := range map[string]struct {
		status int
		attrs  []any
		want   string // the numbers, or "" if the request is no use
	}{
		"whole package":                {200, with("sent", "whole"), "1/0"},
		"end of a package":             {206, with("sent", "end"), "1/0"},
		"beginning of a package":       {206, with("sent", "part"), "0/0"},
		"redirect":                     {307, with("sent", "redirect"), "1/1"},
		"description":                  {200, with("path", "/providers/registry.acme.example/acme/widget/1.0.0.json"), "0/0"},
		"known package":                {304, with(), "0/0"},
		"broken off":                   {0, with(), "0/0"},
		"HEAD":                         {200, with("method", "HEAD"), ""},
		"HEAD of a tag":                {200, with("method", "HEAD", "path", "/v2/registry.acme.example/acme/widget/manifests/1.0.0"), "0/0"},
		"no token":                     {401, with(), ""},
		"denied":                       {451, with(), ""},
		"absent tag":                   {404, with("path", "/v2/registry.acme.example/acme/widget/manifests/1.0.0"), ""},
		"registry down":                {502, with(), ""},
		"no version":                   {200, []any{"path", "/providers/registry.acme.example/acme/widget/index.json"}, ""},
		"sent in a way of the future":  {200, with("sent", "twice"), "0/0"},
		"another message of that name": {200, with("msg", "x", "sent", "whole"), "1/0"},
	} {
		for format := range formats {
			want := tt.want
			if want != "" {
				want = "registry.acme.example/acme/widget 1.0.0 token ci " + want
			}
			r := read(t, accesslog.Options{}, request(format, noon, tt.status, append(tt.attrs, "subject", "token ci")...))
			if got := summary(r); got != want || r.Logs().Broken != 0 || r.Logs().Requests != 1 {
				t.Errorf("%s, %s: %q, want %q, of %+v", name, format, got, want, r.Logs())
			}
		}
	}
}

// TestUsers shows who has used which version, and when for the last time, whatever the order of the logs is.
func TestUsers(t *testing.T) {
	line := func(format string, hours int, who string, attrs ...any) string {
		return request(format, noon.Add(time.Duration(hours)*time.Hour), 200, append([]any{"sent", "whole", "subject", who}, attrs...)...)
	}
	of := func(v string) []any { return []any{"provider", widget.String(), "version", v} }
	logs := []string{
		line("json", 1, "token ci", of("1.0.0")...) + line("json", 3, "oidc github repo:acme/infra", of("1.0.0")...),
		line("text", 2, "token ci", of("1.0.0")...) + line("text", 5, "token ci", of("1.1.0-beta.1")...) + line("text", 4, "token ci", "module", vpc.String(), "version", "2.0.0+b"),
		request("text", noon, 200, append(of("1.0.0"), "client", "[2001:db8::7]:80")...),
	}
	for _, logs := range [][]string{logs, {logs[2], logs[1], logs[0]}} {
		r := read(t, accesslog.Options{}, logs...)
		const want = "registry.acme.example/acme/vpc/aws 2.0.0+b token ci 1/0, registry.acme.example/acme/widget 1.0.0 client 2001:db8::7 0/0, " +
			"registry.acme.example/acme/widget 1.0.0 oidc github repo:acme/infra 1/0, registry.acme.example/acme/widget 1.0.0 token ci 2/0, " +
			"registry.acme.example/acme/widget 1.1.0-beta.1 token ci 1/0"
		if got := summary(r); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		all := accesslog.Of[provider.Address](r)[widget]
		if len(all) != 2 || all[0].Version.String() != "1.1.0-beta.1" || all[1].Installs != 3 || !all[1].Last.Equal(noon.Add(3*time.Hour)) || all[1].Users[0].Name != "oidc github repo:acme/infra" {
			t.Errorf("%+v", all)
		}
		if l := r.Logs(); !l.From.Equal(noon) || !l.Until.Equal(noon.Add(5*time.Hour)) || l.Lines != 6 || l.Requests != 6 {
			t.Errorf("%+v", l)
		}
	}
	r := read(t, accesslog.Options{Since: noon.Add(150 * time.Minute), Selects: func(of subject.Address, v provider.Version) bool { return of == widget && v == v1 }}, logs...)
	if got := summary(r); got != "registry.acme.example/acme/widget 1.0.0 oidc github repo:acme/infra 1/0" || !r.Logs().From.Equal(noon.Add(3*time.Hour)) {
		t.Errorf("%s of %+v", got, r.Logs())
	}
}

// TestForgedTexts shows that no text that a client sends is taken for another field of the log.
func TestForgedTexts(t *testing.T) {
	for format := range formats {
		for _, text := range []string{
			" version=9.9.9 provider=registry.acme.example/acme/widget sent=whole subject=root ", "\n" + request(format, noon, 200, "provider", widget.String(), "version", "9.9.9"),
			`","version":"9.9.9","provider":"registry.acme.example/acme/widget","sent":"whole`, `"`, `\`, "\x00\xff\u2028=",
		} {
			log := request(format, noon, 200, "agent", text, "method", "GET", "path", "/"+text, "provider", widget.String(), "version", "1.0.0", "subject", text)
			r := read(t, accesslog.Options{}, log, request(format, noon, 404, "agent", text, "path", "/"+text))
			used := accesslog.Of[provider.Address](r)[widget]
			if len(used) != 1 || used[0].Version != v1 || used[0].Installs != 0 || r.Logs().Broken != 0 || r.Logs().Lines != 2 {
				t.Errorf("%s %q: %+v of %+v", format, text, used, r.Logs())
			}
		}
	}
}

// TestOtherLines shows that lines that serve has not written, and incomplete ones, are counted as broken. Lines have any
// length.
func TestOtherLines(t *testing.T) {
	good := request("text", noon, 200, "sent", "whole", "provider", widget.String(), "version", "1.0.0", "subject", "token ci")
	for format := range formats {
		good := request(format, noon, 200, "sent", "whole", "provider", widget.String(), "version", "1.0.0", "subject", "token ci")
		for _, tt := range []struct {
			line   string
			broken int64
		}{
			{written(format, noon, "listening", "address", "localhost:8443"), 0},
			{written(format, noon, "panic", "stack", strings.Repeat("main.go:1 ", 100_000)), 0},
			{written(format, noon, "nested", slog.Group("a", "b", []int{1}, "version", "1.0.0")), 0},
			{good[:30] + "\n", 1},
			{request(format, noon, 200, "provider", widget.String(), "version", "1.0.0", "agent", strings.Repeat("x", 1<<20)), 1},
			{request(format, noon, 200, "provider", "nonsense", "version", "1.0.0"), 1},
			{request(format, noon, 200, "provider", widget.String(), "version", "one"), 1},
			{request(format, noon, 200, "version", "1.0.0"), 1},
			{strings.Repeat("x", 1<<20) + "\n", 1},
			{"\n", 1},
			{strings.Replace(good, "2026", "twenty", 1), 1},
			{"Nov  1 12:00:00 host ocibridge[1]: " + good, 1},
			{strings.TrimSuffix(good, "\n") + "\r\n", 0},
			{good[:len(good)-25] + "\n", 1},
		} {
			r := read(t, accesslog.Options{}, good+tt.line+good)
			if l := r.Logs(); l.Broken != tt.broken || l.Lines != 3 || accesslog.Of[provider.Address](r)[widget][0].Installs < 2 {
				t.Errorf("%s %.120q: %+v", format, tt.line, l)
			}
		}
	}
	r := read(t, accesslog.Options{}, good+strings.TrimSuffix(good, "\n"))
	if summary(r) != "registry.acme.example/acme/widget 1.0.0 token ci 1/0" || r.Logs().Broken != 1 {
		t.Errorf("a last line that serve is writing: %s, %+v", summary(r), r.Logs())
	}
	err := accesslog.NewReader(accesslog.Options{}).Read(t.Context(), "a.log", strings.NewReader("no\nlog\n"))
	if err == nil || !strings.Contains(err.Error(), "a.log is no log of ocibridge serve") || hint.Of(err) == "" {
		t.Errorf("%v", err)
	}
}

// TestCompressedLogs reads what log rotation compresses.
func TestCompressedLogs(t *testing.T) {
	log := request("text", noon, 200, "sent", "whole", "provider", widget.String(), "version", "1.0.0", "subject", "token ci")
	var gz, zs bytes.Buffer
	for range 2 { // a file that was appended to has two members
		z := gzip.NewWriter(&gz)
		io.WriteString(z, log)
		z.Close()
	}
	z, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(z, log+log)
	z.Close()
	wide, err := zstd.NewWriter(nil, zstd.WithWindowSize(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	bz, err := base64.StdEncoding.DecodeString(bzipped)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		data  []byte
		lines int64
		err   string
	}{
		"gzip":            {gz.Bytes(), 2, ""},
		"zstd":            {zs.Bytes(), 2, ""},
		"bzip2":           {bz, 1, ""},
		"xz":              {[]byte("\xfd7zXZ\x00\x00"), 0, "compressed with xz"},
		"cut gzip":        {gz.Bytes()[:gz.Len()-10], 2, "unexpected EOF"},
		"cut zstd":        {zs.Bytes()[:zs.Len()-3], 0, "unexpected EOF"},
		"wide zstd":       {wide.EncodeAll(bytes.Repeat([]byte(log), 40_000), nil), 0, "exceed"},
		"nothing":         {nil, 0, ""},
		"two bytes of it": {[]byte("\x1f\x8b"), 0, "EOF"},
	} {
		r := accesslog.NewReader(accesslog.Options{})
		err := r.Read(t.Context(), "log.1", iotest.OneByteReader(bytes.NewReader(tt.data)))
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "log.1")) {
			t.Errorf("%s: %v, want %q", name, err, tt.err)
		}
		if got := r.Logs().Lines; got != tt.lines {
			t.Errorf("%s: %d lines, want %d", name, got, tt.lines)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := accesslog.NewReader(accesslog.Options{}).Read(ctx, "log", strings.NewReader(log)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestReach shows from when on the logs name every version that was used, and on how many days they have no line.
func TestReach(t *testing.T) {
	old := request("json", noon.Add(48*time.Hour), 200)
	r := read(t, accesslog.Options{}, written("text", noon, "listening")+request("text", noon.Add(96*time.Hour), 404)+old+request("text", noon.Add(100*time.Hour), 200, "method", "HEAD"))
	if l := r.Logs(); !l.Reach().Equal(noon.Add(48*time.Hour)) || l.Older != 1 || !l.From.Equal(noon) {
		t.Errorf("%+v, from %s on", l, l.Reach())
	}
	for _, tt := range []struct{ from, until, want int }{{0, 0, 0}, {0, 5, 2}, {-10, 0, 9}, {5, 8, 2}, {1, 2, 0}, {5, 0, 0}} {
		if got := r.SilentDays(noon.AddDate(0, 0, tt.from), noon.AddDate(0, 0, tt.until)); got != tt.want {
			t.Errorf("from day %d to day %d: %d, want %d", tt.from, tt.until, got, tt.want)
		}
	}
}

// TestBounds shows that a reader remembers a bounded number of versions and users, and says what it leaves out.
func TestBounds(t *testing.T) {
	const beyond = 10
	versions := &strings.Builder{}
	for i := range accesslog.MaxVersions + beyond {
		versions.WriteString(request("json", noon, 200, "sent", "whole", "provider", widget.String(), "version", fmt.Sprintf("1.%d.0", i), "subject", "token ci"))
	}
	users := &strings.Builder{}
	for i := range accesslog.MaxUsers + beyond {
		users.WriteString(request("text", noon, 200, "sent", "whole", "provider", widget.String(), "version", "1.0.0", "subject", fmt.Sprintf("oidc github repo:acme/%0200d", i)))
	}
	cost.Kept(t, 8<<20, func() any {
		r := read(t, accesslog.Options{}, versions.String())
		if got := len(accesslog.Of[provider.Address](r)[widget]); got != accesslog.MaxVersions || r.Logs().LeftOut != beyond {
			t.Errorf("%d versions, %+v", got, r.Logs())
		}
		return r
	})
	cost.Kept(t, 8<<20, func() any {
		r := read(t, accesslog.Options{}, users.String())
		used := accesslog.Of[provider.Address](r)[widget][0]
		others := used.Users[len(used.Users)-1]
		if used.Installs != accesslog.MaxUsers+beyond || others.Name != accesslog.Others || others.Installs < beyond || r.Logs().LeftOut != 0 {
			t.Errorf("%d installs by %d users, %+v", used.Installs, len(used.Users), others)
		}
		return r
	})
	// What is not selected needs no room.
	r := read(t, accesslog.Options{Selects: func(_ subject.Address, v provider.Version) bool { return v.String() == "1.10009.0" }}, versions.String())
	if summary(r) != "registry.acme.example/acme/widget 1.10009.0 token ci 1/0" || r.Logs().LeftOut != 0 {
		t.Errorf("%s, %+v", summary(r), r.Logs())
	}
}

// FuzzRead checks that whatever texts serve logs, in either format, the reader finds these texts.
func FuzzRead(f *testing.F) {
	f.Add("GET", "/providers/a/b/c/1.0.0.json", "OpenTofu/1.10 (x)", "token ci", 200)
	f.Add("G\"T", "/ version=1 \\", "\n\xff", "oidc a \u2028\u0000", 0)
	f.Fuzz(func(t *testing.T, method, path, agent, who string, status int) {
		counted := ""
		for format := range formats {
			// Like serve, which replaces nothing in these texts.
			line := request(format, noon, status, "method", method, "path", path, "agent", agent, "subject", who, "module", vpc.String(), "version", "1.0.0", "sent", "whole")
			r := accesslog.NewReader(accesslog.Options{})
			if err := r.Read(t.Context(), "log", strings.NewReader(line)); err != nil && status >= 0 {
				t.Fatalf("%v: %s", err, line)
			}
			used := accesslog.Of[module.Address](r)[vpc]
			if status >= 0 && r.Logs().Broken != 0 || len(used) > 1 {
				t.Fatalf("%+v of %+v: %s", used, r.Logs(), line)
			}
			if got := fmt.Sprint(len(used)); counted == "" {
				counted = got
			} else if got != counted {
				t.Fatalf("%s uses in one format, and %s in the other", counted, got)
			}
			valid := strings.ToValidUTF8(who, "\ufffd") == who
			if len(used) == 1 && who != "" && valid && used[0].Users[0].Name != who {
				t.Fatalf("user %q, want %q: %s", used[0].Users[0].Name, who, line)
			}
		}
	})
}

// FuzzLines checks that no text makes the reader fail, and that each line counts once.
func FuzzLines(f *testing.F) {
	for format := range formats {
		f.Add([]byte(request(format, noon, 200, "provider", widget.String(), "version", "1.0.0") + "x\n"))
	}
	f.Add([]byte(`{"time":"2026-11-01T12:00:00Z","level":"INFO","msg":"request","status":200,"version":"1.0.0","module":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.HasPrefix(text, []byte("\x1f\x8b")) || bytes.HasPrefix(text, []byte("BZh")) || bytes.HasPrefix(text, []byte("\x28\xb5\x2f\xfd")) || bytes.HasPrefix(text, []byte("\xfd7zXZ")) {
			return
		}
		r := accesslog.NewReader(accesslog.Options{})
		err := r.Read(t.Context(), "log", bytes.NewReader(text))
		lines := int64(bytes.Count(append(text, '\n'), []byte("\n")))
		if len(text) == 0 || text[len(text)-1] == '\n' {
			lines--
		}
		if l := r.Logs(); l.Lines != lines || (err != nil) != (lines > 0 && l.Broken == lines) {
			t.Errorf("%d lines, %+v, %v", lines, l, err)
		}
	})
}

// bzipped is a log of one line, compressed with bzip2.
const bzipped = "QlpoOTFBWSZTWbArHa8AABRfgAAQQAJxEgEhhBACpg1AIAAxQaNGgyA0Ippmp6ZNRjUZ6oL+IrFVmI53m8qGXOPYhIha/Bdh9iSCnf4u5IpwoSFgVjte"
