package helper

import (
	"strings"
	"testing"
)

// FuzzAnswer shows that decode either decodes the output of a helper or returns an
// error that does not quote the output.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{"Username":"u","Secret":"marked-secret"}`, `{"Username":"<token>","Secret":"marked-secret"}`, `{"ServerURL":1,"Username":2}`, `marked-secret`, ``, `null`, `[]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		b := cappedBuffer{max: 64}
		b.Write(out)
		var answer struct{ Username, Secret string }
		err := decode(b, &answer)
		switch {
		case err != nil && strings.Contains(err.Error(), "marked"):
			t.Errorf("the error quotes the output: %v", err)
		case err == nil && len(out) > 64:
			t.Errorf("an answer that is too long is decoded: %v", answer)
		}
	})
}

// TestReasons shows that the reason of a failure is shown, and that no secret is.
func TestReasons(t *testing.T) {
	for _, tt := range []struct{ stdout, want string }{
		{"error getting credentials - err: exit status 1, out: `GDBus.Error: Cannot autolaunch D-Bus without X11 $DISPLAY`\n",
			"error getting credentials - err: exit status 1, out: `GDBus.Error: Cannot autolaunch D-Bus without X11 $DISPLAY`"},
		{`exec: "pass": executable file not found in $PATH`, `exec: "pass": executable file not found in $PATH`},
		{"pass not initialized:\n\x1b[31mexit status 1", "pass not initialized: [31mexit status 1"},
		{"no access to 123456789012.dkr.ecr.eu-west-1.amazonaws.com for arn:aws:iam::123456789012:user/docker", "no access to 123456789012.dkr.ecr.eu-west-1.amazonaws.com for arn:aws:iam::123456789012:user/docker"},
		{"in /home/me/.password-store/docker-credential-helpers is no key", "in /home/me/.password-store/docker-credential-helpers is no key"},
		{"", ""},
		{`{"Username":"u","Secret":"marked"}`, ""},
		{"login of u: {\"Secret\":\"marked\"}", ""},
		{"marked\n", ""},
		{"bad login: password=marked; again", "bad login: password=[redacted] again"},
		{"the token is marked", "the token is [redacted]"},
		{"401 for Authorization: Bearer marked", "401 for Authorization: Bearer [redacted]"},
		{"get https://u:marked@ghcr.io/v2/ : 401", "get https://[redacted]@ghcr.io/v2/ : 401"},
		{"refused eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVP-mB92K27uhbU now", "refused [redacted].[redacted].[redacted] now"},
	} {
		if got := reasonOf([]byte(tt.stdout)); got != tt.want {
			t.Errorf("the reason in %q is %q, want %q", tt.stdout, got, tt.want)
		}
	}
	if got := reasonOf([]byte(strings.Repeat("no ", 10_000))); len(got) > maxReason {
		t.Errorf("a reason of %d bytes", len(got))
	}
}
