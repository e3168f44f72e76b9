package hint

import "fmt"

// Count returns a number with its noun, such as "1 version" and "2 versions".
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
