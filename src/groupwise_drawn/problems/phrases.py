"""What is said of each thing, in four ways: two train, one validates, one tests.

No sentence of a held-out problem is one that trains, so that remembering sentences does not help.
"""

from collections.abc import Mapping
from typing import Literal

Language = Literal["en", "zh"]
Wordings = tuple[str, str, str, str]

NAMES: Mapping[Language, tuple[str, ...]] = {
    "en": ("Anna", "Ben", "Carla", "David", "Ella", "Farid", "Grace", "Hugo", "Ivy", "Jonas"),
    "zh": ("小明", "小红", "小华", "小丽", "小刚", "小芳", "小军", "小梅"),
}
THINGS: Mapping[Language, tuple[str, ...]] = {
    "en": ("apples", "stamps", "marbles", "books", "coins", "shells", "pencils", "cards", "eggs"),
    "zh": ("苹果", "邮票", "弹珠", "贝壳", "铅笔", "卡片", "鸡蛋", "气球"),
}
TOWNS = ("Velm", "Torra", "Quist", "Bramo", "Lunde", "Pasko", "Ferrin", "Odvar", "Zelka", "Mirrow",
         "Hasten", "Kolvik", "Narbe", "Sorvan", "Tulik", "Wexby")  # fmt: skip
WATERS = ("Asel", "Brinn", "Cavo", "Druse", "Elpin", "Forsa", "Gelt", "Hyra", "Ister", "Jolde")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
          "October", "November", "December")  # fmt: skip
WEEKDAYS: Mapping[Language, tuple[str, ...]] = {
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "zh": ("星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日"),
}

ENGLISH: Mapping[str, Wordings] = {
    "story_start": (
        "{name} has {x} {thing}.",
        "In the box of {name} there are {x} {thing}.",
        "At breakfast {name} owned exactly {x} {thing}.",
        "When the week began, {x} {thing} stood on a shelf that belongs to {name}.",
    ),
    "story_gain": (
        "Then {name} buys {n} more.",
        "A friend adds {n} to them.",
        "Later on, another {n} arrive by post.",
        "An uncle on a visit brings along {n} extra ones.",
    ),
    "story_lose": (
        "{n} of them get lost.",
        "{name} gives {n} of them away.",
        "Sadly, the dog carries off {n}.",
        "On the market a neighbour takes {n} out of the collection.",
    ),
    "story_times": (
        "Soon there are {n} times as many.",
        "Their number grows to {n} times what it was.",
        "Over the summer the collection becomes {n} times larger than before.",
        "By luck, what is there is multiplied by {n}.",
    ),
    "story_share": (
        "They are put evenly into {n} bags, and {name} keeps one bag.",
        "{name} shares them equally among {n} people and looks at what one of them gets.",
        "All of it is split into {n} equal piles; only a single pile stays.",
        "Divided fairly between {n} cousins, just the part of one cousin remains here.",
    ),
    "story_end": (
        "How many {thing} are there now?",
        "How many {thing} does {name} have in the end?",
        "What is the final number of {thing}?",
        "Count the {thing} that are left over for {name}.",
    ),
    "change": (
        "One of the {thing} costs {p} cents. {name} buys {n} and pays with {m} cents. "
        "How many cents does {name} get back?",
        "{name} takes {n} {thing} at {p} cents each and hands over {m} cents. "
        "How much change is that, in cents?",
        "At a stall {thing} are sold for {p} cents a piece. Somebody called {name} picks {n}, "
        "and has {m} cents in the purse. What is in the purse afterwards, in cents?",
        "Out of {m} cents of pocket money, {name} spends what {n} {thing} cost when each is "
        "priced at {p} cents. Tell how many cents remain.",
    ),
    "distance": (
        "A train goes {v} km in one hour. How far does it go in {t} hours and {d} km more?",
        "{name} rides {v} km every hour for {t} hours and walks {d} km after that. "
        "How long is the way in km?",
        "For {t} hours a boat keeps a speed of {v} km/h; the last {d} km it is pulled. "
        "Give the whole distance in km.",
        "Driving at {v} kilometres per hour takes {name} {t} hours up to the last village, from "
        "where {d} kilometres are missing. How far away was the goal at the start, in km?",
    ),
    "fence": (
        "A garden is {a} m long and {b} m wide. How many metres of fence go around it?",
        "{name} walks once around a field of {a} m by {b} m. How many metres is that?",
        "What is the perimeter, in metres, of a rectangle whose sides measure {a} m and {b} m?",
        "The edge of a rectangular pool, {a} metres times {b} metres, gets a rope on all four "
        "sides. Which length of rope is needed, in metres?",
    ),
    "mean": (
        "{name} scores {a}, {b} and {c} points. What is the average?",
        "On three days {name} reads {a}, {b} and {c} pages. How many is that a day on average?",
        "Find the mean of the three measurements {a}, {b} and {c}.",
        "Three parcels weigh {a} kg, {b} kg and {c} kg; which weight, in kg, would each have if "
        "all were equally heavy?",
    ),
    "list_task": (
        "Write a function `{name}(numbers)`. It takes those of the numbers that are {keep}, "
        "{change}, and returns {fold}.",
        "`{name}(numbers)` gets a list of integers. Of all that are {keep}, {change}; then give "
        "back {fold}.",
        "Define `{name}(numbers)` for lists of whole numbers: leave out every number unless it is "
        "{keep}; with the rest, {change}. The result is {fold}.",
        "We need Python code called `{name}(numbers)`. First it selects what is {keep} from its "
        "argument. Next, {change}. What it hands to the caller is {fold}.",
    ),
    "text_task": (
        "Write a function `{name}(text)` that returns the text after this: {first}; then {second}.",
        "`{name}(text)` gets a string. Let it {first}, and after that {second}, and return it.",
        "Define `{name}(text)`, where two things happen one after the other to a string. It has "
        "to {first}. The outcome of this it must {second}.",
        "We need Python code called `{name}(text)` which works in two stages on its argument: "
        "stage one is to {first}, stage two is to {second}. Give back the final string.",
    ),
    "example": (
        "For example: {test}",
        "This holds:\n{test}",
        "One case that must be true is\n{test}",
        "A check you can try yourself: {test}",
    ),
    "weekday": (
        "Today is {day}. Which day is it in {k} days?",
        "{name} was born on a {day}. Which day of the week was it {k} days later?",
        "Suppose that a parcel is sent on {day} and needs {k} days. On what weekday does it come?",
        "Starting from a {day}, count forward {k} days in the calendar: where do you end?",
    ),
    "month": (
        "It is {month} now. Which month is it {k} months later?",
        "{name} moves in {month} and stays for {k} months. In which month does {name} leave?",
        "A ship departs in {month} and comes home after {k} months; what month is that?",
        "Counting on {k} months from {month}, at which name of the calendar do you arrive?",
    ),
    "north": (
        "{a} lies north of {b}.",
        "{b} lies south of {a}.",
        "Whoever goes from {b} to {a} travels north.",
        "The road out of {a} runs southwards until {b} is reached.",
    ),
    "northmost": (
        "Which of these towns lies furthest north?",
        "Which town has no other one north of it?",
        "Name the northernmost place that is spoken of.",
        "At the upper edge of a map that shows them all, what would be written?",
    ),
    "article": (
        "{town} is a town on the river {water}. It has {people} people, and its market was "
        "founded in {year}. The mayor of {town} is {name}.",
        "The town of {town} has had a market since {year}. {people} people live there, on the "
        "banks of the {water}, and {name} is their mayor.",
        "Travellers who follow the river {water} come to {town}, whose {people} inhabitants "
        "chose {name} as mayor. Trade has been held on its market square since {year}.",
        "In {year} a market opened at the place where the {water} bends; around it grew {town}. "
        "Today {people} citizens are counted, led by {name}, who is mayor.",
    ),
    "ask_water": (
        "On which river is {town}?",
        "What is the river of {town} called?",
        "Which stream flows through {town}?",
        "Name the water at which one finds {town}.",
    ),
    "ask_mayor": (
        "Who is the mayor of {town}?",
        "What is the name of the mayor of {town}?",
        "By whom is {town} governed?",
        "Which person leads the citizens of {town}?",
    ),
    "ask_year": (
        "In which year was the market of {town} founded?",
        "Since which year has {town} had a market?",
        "When did trade at {town} begin, as a year?",
        "Give the year of the first market day in {town}.",
    ),
}

CHINESE: Mapping[str, Wordings] = {
    "story_start": (
        "{name}有{x}个{thing}。",
        "{name}的盒子里放着{x}个{thing}。",
        "早上，{name}数了数，一共是{x}个{thing}。",
        "周一那天，属于{name}的{thing}正好{x}个。",
    ),
    "story_gain": (
        "后来{name}又买了{n}个。",
        "朋友送来{n}个。",
        "接着邮局寄到了另外{n}个。",
        "叔叔来做客，多带了{n}个。",
    ),
    "story_lose": (
        "其中{n}个丢了。",
        "{name}送给别人{n}个。",
        "不巧，小狗叼走了{n}个。",
        "邻居从里面拿去{n}个。",
    ),
    "story_times": (
        "很快变成了原来的{n}倍。",
        "数量增加到原来的{n}倍。",
        "一个夏天过去，总数是之前的{n}倍了。",
        "运气真好，现有的数目乘以{n}。",
    ),
    "story_share": (
        "平均装进{n}个袋子，{name}只留一袋。",
        "平均分给{n}个人，只看一个人的那份。",
        "全部摆成相等的{n}堆，最后仅保留一堆。",
        "由{n}位亲戚公平地分掉，这里剩下一位亲戚的份额。",
    ),
    "story_end": (
        "现在有多少个{thing}？",
        "{name}最后有几个{thing}？",
        "请问{thing}的最终数目是多少？",
        "算一算，留给{name}的{thing}还有多少？",
    ),
    "weekday": (
        "今天是{day}，{k}天以后是星期几？",
        "{name}在{day}出生，再过{k}天是哪一天？",
        "包裹{day}寄出，路上要走{k}天，到的那天是星期几？",
        "从{day}开始在日历上往后数{k}天，会落在哪里？",
    ),
}

PHRASES: Mapping[Language, Mapping[str, Wordings]] = {"en": ENGLISH, "zh": CHINESE}
