package helper

import (
	"strings"
	"testing"
)

// FuzzAnswer shows that a helper's output is either decoded, or yields an error that
// does not quote it.
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
			t.Errorf("the error quotes it: %v", err)
		case err == nil && len(out) > 64:
			t.Errorf("an answer that is too long is decoded: %v", answer)
		}
	})
}
