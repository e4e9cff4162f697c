package config

import (
	"fmt"
	"math"
	"time"
)

// Duration is a duration as GitLab writes it: a Go duration in a string.
type Duration struct{ time.Duration }

// UnmarshalTOML reads a duration. A bare number is refused: elsewhere in config.toml such keys count seconds, Go would
// take nanoseconds, and either guess would be wrong for somebody.
func (d *Duration) UnmarshalTOML(value any) error {
	switch v := value.(type) {
	case string:
		parsed, err := time.ParseDuration(v)
		if err != nil {
			return fmt.Errorf("%q is not a duration: write it like \"30m\", \"1h30m\" or \"45s\"", v)
		}
		d.Duration = parsed
		return nil
	case int64:
		if hint, ok := secondsHint(v); ok {
			return fmt.Errorf("must be a duration in quotes, not the number %d: did you mean %q?", v, hint)
		}
	case float64:
	}
	return fmt.Errorf("must be a duration in quotes such as \"30m\", it is %s", describe(value))
}

// secondsHint writes a number of seconds as a person would. A number below 60 was hardly meant as seconds: nobody keeps
// pods for so short a time.
func secondsHint(n int64) (string, bool) {
	switch {
	case n <= 0 || n > math.MaxInt64/int64(time.Second):
		return "", false
	case n < 60:
		return fmt.Sprintf("%dm", n), true
	case n%3600 == 0:
		return fmt.Sprintf("%dh", n/3600), true
	case n%60 == 0:
		return fmt.Sprintf("%dm", n/60), true
	}
	return fmt.Sprintf("%ds", n), true
}

// StringOrList is a key that takes one string or a list of them.
type StringOrList []string

// UnmarshalTOML reads either form; an empty string is an empty list.
func (s *StringOrList) UnmarshalTOML(value any) error {
	switch v := value.(type) {
	case string:
		*s = nil
		if v != "" {
			*s = StringOrList{v}
		}
		return nil
	case []any:
		list := make(StringOrList, 0, len(v))
		for i, element := range v {
			text, ok := element.(string)
			if !ok {
				return fmt.Errorf("must be text or a list of texts, element %d is %s", i, describe(element))
			}
			list = append(list, text)
		}
		*s = list
		return nil
	}
	return fmt.Errorf("must be text or a list of texts, it is %s", describe(value))
}

// describe says what a TOML value is, in words for a message that ends "it is …".
func describe(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("the text %q", shorten(v))
	case int64:
		return fmt.Sprintf("the number %d", v)
	case float64:
		return fmt.Sprintf("the number %v", v)
	case bool:
		return fmt.Sprintf("%v", v)
	case time.Time:
		return "a date or time"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "a list of tables"
	case []any:
		return "a list"
	}
	return "something else"
}

func shorten(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
