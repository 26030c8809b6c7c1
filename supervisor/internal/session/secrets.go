package session

import (
	"maps"
	"slices"

	"holdfast/protocol"
	"holdfast/shared/mask"
)

// findSecrets sets the masker of the session. The masker finds the values of the secret variables, which
// the session and the settings name, and matches of the patterns of the settings.
func (i *identity) findSecrets(cfg *Config) {
	names := slices.Concat(i.spec.SecretEnv, cfg.SecretEnv)
	if len(names) == 0 && len(cfg.Mask) == 0 {
		return
	}
	i.masker, i.unmasked = mask.New(childEnv(cfg.Env, i), names, cfg.Mask)
	i.unmasked = slices.DeleteFunc(i.unmasked, func(n string) bool { // a setting may name variables that only some sessions have
		return !mask.IsSecret(i.spec.SecretEnv, n) && !isSet(i.spec.Env, n)
	})
}

// maskInfo masks the secrets in the texts of an info.
func maskInfo(i *protocol.SessionInfo, m *mask.Masker) {
	if m == nil {
		return
	}
	i.Argv, i.Cwd, i.CurrentCwd, i.Title = m.Texts(i.Argv), m.Text(i.Cwd), m.Text(i.CurrentCwd), m.CutText(i.Title)
	i.Labels, i.Command = maskValues(i.Labels, m), maskCommand(i.Command, m)
}

// maskValues returns a map with secrets in its values masked.
func maskValues(all map[string]string, m *mask.Masker) map[string]string {
	if m == nil {
		return all
	}
	out := maps.Clone(all)
	for k, v := range out {
		out[k] = m.Text(v)
	}
	return out
}

// maskCommand returns c, or a copy without secrets.
func maskCommand(c *protocol.CommandInfo, m *mask.Masker) *protocol.CommandInfo {
	if m == nil || c == nil {
		return c
	}
	masked := *c
	masked.Line, masked.Cwd = m.CutText(c.Line), m.Text(c.Cwd)
	return &masked
}

// maskNotification returns n, or a copy without secrets.
func maskNotification(n *protocol.Notification, m *mask.Masker) *protocol.Notification {
	if m == nil || n == nil {
		return n
	}
	return &protocol.Notification{Title: m.CutText(n.Title), Body: m.CutText(n.Body)}
}

// maskAway masks the secrets in the texts of an absence.
func maskAway(i *protocol.AwayInfo, m *mask.Masker) {
	if m == nil {
		return
	}
	i.Notifications, i.Commands = slices.Clone(i.Notifications), slices.Clone(i.Commands)
	for k := range i.Notifications {
		i.Notifications[k] = *maskNotification(&i.Notifications[k], m)
	}
	for k := range i.Commands {
		i.Commands[k] = *maskCommand(&i.Commands[k], m)
	}
}
