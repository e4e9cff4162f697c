package images

import (
	"debug/elf"
	"fmt"
)

// isStatic is whether a program runs without a loader.
func isStatic(file string) (bool, error) {
	f, err := elf.Open(file)
	if err != nil {
		return false, fmt.Errorf("%s is no Linux program: %w", file, err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return false, nil
		}
	}
	return true, nil
}
