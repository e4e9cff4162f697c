//go:build linux

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"idlecount.dev/idlecount/entrypoint/idle"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// settings is what serve takes from its environment; main's comment says what it means.
type settings struct {
	role   wire.Role
	limits idle.Limits
}

// parseSettings reads settings from an environment, and returns all that is wrong with them.
func parseSettings(env []string) (settings, error) {
	values := map[string]string{}
	for _, entry := range env {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, wire.EnvPrefix) {
			values[name] = value
		}
	}
	role, roleErr := parseRole(values[wire.EnvRole])
	idleTime, idleErr := parseDuration(values, wire.EnvIdleTime)
	if idleErr == nil && idleTime < 0 {
		idleErr = fmt.Errorf("%s=%s is negative; 0s turns the idle timer off", wire.EnvIdleTime, values[wire.EnvIdleTime])
	}
	if values[wire.EnvAbandonTime] == "" {
		values[wire.EnvAbandonTime] = wire.DefaultAbandonTime.String()
	}
	abandonTime, abandonErr := parseDuration(values, wire.EnvAbandonTime)
	if abandonErr == nil && abandonTime <= 0 {
		abandonErr = fmt.Errorf("%s=%s is not positive", wire.EnvAbandonTime, values[wire.EnvAbandonTime])
	}
	return settings{role: role, limits: idle.Limits{Idle: idleTime, Abandon: abandonTime}}, errors.Join(roleErr, idleErr, abandonErr)
}

func parseRole(value string) (wire.Role, error) {
	switch role := wire.Role(value); role {
	case wire.Build, wire.Helper:
		return role, nil
	}
	return "", fmt.Errorf("%s=%q: want %q or %q", wire.EnvRole, value, wire.Build, wire.Helper)
}

func parseDuration(values map[string]string, name string) (time.Duration, error) {
	value, ok := values[name]
	if !ok {
		return 0, fmt.Errorf("%s is not set; want a duration such as 30m", name)
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("%s=%q: want a duration such as 30m", name, value)
	}
	return d, nil
}
