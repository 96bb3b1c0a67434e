"""What each participant can hold of a common network, as a setting says it: dealt round, by name, or by profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heterophony.base.wording import meant
from heterophony.kernel.capacity import Capacity, smallest
from heterophony.settings.setting import Setting, SettingError

NAMES = ("width", "depth", "rank")


def capacities(setting: Setting, roles: Mapping[str, str]) -> dict[str, Capacity]:
    """Return the capacity of each participant, of which `roles` has all; nothing where nothing is said of any."""
    participants = list(roles)
    said = {name: getattr(setting.models, name) for name in NAMES}
    if all(given is None for given in said.values()) and not _in_profiles(setting):
        return {}
    for name, given in said.items():
        if isinstance(given, dict):
            _check_names(setting, name, given, participants)
    found = {}
    for place, participant in enumerate(participants):
        own = {name: _own(given, place, participant) for name, given in said.items()}
        own |= _of_profile(setting, participant, roles[participant])
        try:
            found[participant] = Capacity(**{name: value for name, value in own.items() if value is not None})
        except ValueError as error:
            raise SettingError(f"{setting.name}: models: {error}") from None
    return {"": smallest(found.values())} if setting.models.smallest else found


def several(setting: Setting) -> bool:
    """Return whether participants can hold different amounts of a network."""
    given = [getattr(setting.models, name) for name in NAMES]
    return _in_profiles(setting) or any(isinstance(each, dict | tuple) for each in given)


def _own(given: Any, place: int, participant: str) -> Any:
    """Return a participant's own value: of a list that is dealt round, or of a table by name."""
    if isinstance(given, tuple):
        return given[place % len(given)]
    if isinstance(given, dict):
        return given.get(participant, given.get("*"))
    return given


def _check_names(setting: Setting, name: str, given: Mapping[str, Any], participants: Sequence[str]) -> None:
    for key in given:
        if key != "*" and key not in participants:
            near = meant(key, participants)
            raise SettingError(f"{setting.name}: models.{name}: no participant is called {key!r}{near}")
    if "*" not in given and (silent := [each for each in participants if each not in given]):
        raise SettingError(f"{setting.name}: models.{name} has no value for {silent[0]}: give one, or one for '*'")


def _of_profile(setting: Setting, participant: str, role: str) -> dict[str, Any]:
    """Return what the profile of a participant's device says of it."""
    profiles = (setting.profiles.get(name) for name in (participant, role, ""))
    profile = next((own for own in profiles if own is not None), None)
    values = {} if profile is None else {name: getattr(profile, name) for name in NAMES}
    return {name: value for name, value in values.items() if value is not None}


def _in_profiles(setting: Setting) -> bool:
    return any(getattr(profile, name) is not None for profile in setting.profiles.values() for name in NAMES)
