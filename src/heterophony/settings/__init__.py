"""Settings: which data, whose networks, how long. A shipped name or a TOML file; and the federation made from one."""

from heterophony.settings.assemble import assemble, reassemble, score_of, task_of
from heterophony.settings.setting import Setting, SettingError, shipped
from heterophony.settings.world import World

__all__ = ["Setting", "SettingError", "World", "assemble", "reassemble", "score_of", "shipped", "task_of"]
