package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// Problem is one thing that is wrong, or worth a warning, in a file.
type Problem struct {
	File    string
	Line    int    // from 1; 0 where it isn't known. Only what doesn't parse has a place.
	Column  int    // from 1
	Path    string // e.g. runners[0].kubernetes.idle_policy[1].periods[0]; "" for the whole file
	Message string

	cause error // what the system said, for errors.Is
}

// Error is `file: path: message`, with the line and column after the file where they are known.
func (p Problem) Error() string {
	text := p.File
	if p.Line > 0 {
		text += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	if p.Path != "" {
		text += ": " + p.Path
	}
	return text + ": " + p.Message
}

// String is Error, for warnings, which aren't errors.
func (p Problem) String() string { return p.Error() }

// Unwrap gives the error of the system, such as fs.ErrNotExist, where there was one.
func (p Problem) Unwrap() error { return p.cause }

// Problems are the problems that an error of Load holds, none for any other error.
func Problems(err error) []Problem {
	var problems []Problem
	many, ok := err.(*multierror.Error) //nolint:errorlint // Load returns it as it is
	if !ok {
		return nil
	}
	for _, e := range many.Errors {
		if p, ok := e.(Problem); ok { //nolint:errorlint // these are put in below, unwrapped
			problems = append(problems, p)
		}
	}
	return problems
}

// errorOf makes one error of all problems, in order; nil of none.
func errorOf(problems []Problem) error {
	errs := &multierror.Error{ErrorFormat: func(all []error) string {
		lines := make([]string, 0, len(all))
		for _, err := range all {
			lines = append(lines, err.Error())
		}
		return strings.Join(lines, "\n")
	}}
	for _, p := range sorted(problems) {
		errs = multierror.Append(errs, p)
	}
	return errs.ErrorOrNil()
}

// sorted orders problems by file, then by place, and leaves out what is said twice. Indexes count: [10] comes after [9].
func sorted(problems []Problem) []Problem {
	list := slices.Clone(problems)
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			compareNatural(a.Path, b.Path),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.CompactFunc(list, func(a, b Problem) bool { return a.Error() == b.Error() })
}

// compareNatural compares texts with the numbers in them as numbers.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			ta, tb := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if c := cmp.Or(cmp.Compare(len(ta), len(tb)), cmp.Compare(ta, tb)); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
