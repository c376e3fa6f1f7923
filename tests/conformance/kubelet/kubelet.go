// Copyright (c) 2026, fleet.cdi contributors
// GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

//go:build tools

// Package kubelet keeps the modules of the real kubelet in go.mod and go.sum; it is never compiled.
package kubelet

import _ "k8s.io/kubernetes/cmd/kubelet"
