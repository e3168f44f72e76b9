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
