// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import "fmt"

// nameOf returns the name of a value, or what it is and the number if it has none.
func nameOf(value int, what string, names ...string) string {
	if value < 0 || value >= len(names) || names[value] == "" {
		return fmt.Sprintf("%s %d", what, value)
	}
	return names[value]
}
