"""The table from an activity to the windows that show it.

A variant names how the content is painted and what kind of window holds it; where windows lie on
the screen is decided in ``scene``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from groupwise_drawn.desktops import (
    development,
    feeds,
    games,
    imaging,
    machines,
    media,
    news,
    office,
    reading,
    search,
    sheets,
    shops,
    slides,
    trips,
)
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import Tone

__all__ = ["PAINTERS", "Variant"]


@dataclass(frozen=True)
class Variant:
    """One look of an activity.

    ``frame``: app has a title bar, browser has tabs and an address, bare may cover the whole
    screen without any frame. ``tone`` is what such programs usually are, whatever the theme;
    ``latin`` keeps the text in Latin letters, as in code.
    """

    paint: Callable[[Pen, Box], None]
    frame: Literal["app", "browser", "bare"] = "app"
    tone: Tone = "any"
    latin: bool = False

    @property
    def name(self) -> str:
        """The painter's name without its verb."""
        return getattr(self.paint, "__name__", "").removeprefix("paint_")


PAINTERS: dict[str, tuple[Variant, ...]] = {
    "coding": (
        Variant(development.paint_ide, tone="dark", latin=True),
        Variant(development.paint_ide, latin=True),
        Variant(development.paint_light_editor, latin=True),
        Variant(development.paint_split_code, latin=True),
        Variant(development.paint_notebook, "browser", "light", latin=True),
        Variant(development.paint_review, "browser", latin=True),
    ),
    "document": (
        Variant(office.paint_writer, tone="light"),
        Variant(office.paint_writer),
        Variant(office.paint_online_document, "browser", "light"),
        Variant(office.paint_notes),
        Variant(office.paint_form),
    ),
    "game": (
        Variant(games.paint_cards),
        Variant(games.paint_board),
        Variant(games.paint_puzzle),
        Variant(games.paint_platformer, "bare"),
        Variant(games.paint_first_person, "bare"),
    ),
    "image_editing": (
        Variant(imaging.paint_layers, tone="dark"),
        Variant(imaging.paint_layers),
        Variant(imaging.paint_simple_paint, tone="light"),
        Variant(imaging.paint_darkroom, tone="dark"),
        Variant(imaging.paint_vectors),
    ),
    "news_finance": (
        Variant(news.paint_front_page, "browser", "light"),
        Variant(news.paint_article, "browser"),
        Variant(news.paint_markets, "browser"),
        Variant(news.paint_weather, "browser"),
    ),
    "pdf_reading": (
        Variant(reading.paint_viewer),
        Variant(reading.paint_browser_paper, "browser"),
        Variant(reading.paint_spread),
        Variant(reading.paint_ebook),
    ),
    "presentation": (
        Variant(slides.paint_impress),
        Variant(slides.paint_ribbon_slides),
        Variant(slides.paint_sorter),
        Variant(slides.paint_show, "bare"),
    ),
    "shopping": (
        Variant(shops.paint_product_grid, "browser", "light"),
        Variant(shops.paint_product, "browser", "light"),
        Variant(shops.paint_cart, "browser", "light"),
        Variant(shops.paint_reviews, "browser"),
    ),
    "social": (
        Variant(feeds.paint_feed, "browser"),
        Variant(feeds.paint_chat),
        Variant(feeds.paint_photo_wall, "browser"),
        Variant(feeds.paint_forum, "browser"),
    ),
    "spreadsheet": (
        Variant(sheets.paint_sheet, tone="light"),
        Variant(sheets.paint_chart_sheet),
        Variant(sheets.paint_wide_sheet),
        Variant(sheets.paint_online_sheet, "browser", "light"),
    ),
    "terminal_admin": (
        Variant(machines.paint_terminal, latin=True),
        Variant(machines.paint_terminal, latin=True),
        Variant(machines.paint_split_terminal, latin=True),
        Variant(machines.paint_monitor),
        Variant(machines.paint_settings),
        Variant(machines.paint_files),
    ),
    "travel": (
        Variant(trips.paint_booking, "browser", "light"),
        Variant(trips.paint_flights, "browser"),
        Variant(trips.paint_hotels, "browser", "light"),
        Variant(trips.paint_route, "browser"),
    ),
    "video": (
        Variant(media.paint_video_page, "browser"),
        Variant(media.paint_player),
        Variant(media.paint_playlist),
        Variant(media.paint_screening, "bare"),
        Variant(media.paint_library, "browser", "dark"),
    ),
    "web_search": (
        Variant(search.paint_results, "browser", "light"),
        Variant(search.paint_results, "browser"),
        Variant(search.paint_search_home, "browser"),
        Variant(search.paint_picture_results, "browser"),
        Variant(search.paint_encyclopedia, "browser", "light"),
        Variant(search.paint_new_tab, "browser"),
    ),
}
