// Copyright (c) 2026, fleet.cdi contributors
// GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

module fleet.cdi/hook

go 1.26.0

require github.com/NVIDIA/nvidia-container-toolkit v1.20.1
